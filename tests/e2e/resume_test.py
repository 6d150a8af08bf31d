"""Resuming: a job that was stopped at any moment and goes on ends with the weights, to the byte, of one that was not.

    python tests/e2e/resume_test.py TRAINER_BINARY [TEST...]

KILLS=200 in the environment makes the test with kills at random moments longer.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""

# 64 pairs in batches of 6: an epoch has 11 steps, the last one ragged. Dropout is on, as tiny_bert's config has it.
BERT = {
    "job": {"name": "resume", "seed": 7},
    "model": {"type": "bert_classifier", "pretrained": "tests/data/tiny_bert", "init": "random"},
    "data": {"train": {"path": "tests/data/pairs.tsv", "text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
             "validation": {"path": "tests/data/pairs.tsv"}, "max_length": 64},
    "train": {"steps": 25, "batch_size": 6},
    "optimizer": {"lr": 1e-3},
    "schedule": {"type": "linear", "warmup_steps": 5},
    "evaluation": {"every": 4, "metrics": ["loss", "accuracy"], "best": "loss"},
    "logging": {"every_steps": 3},
    "checkpoint": {"every_steps": 1, "keep_last": 0},
    "hardware": {"device": "cpu"},
}
GPT = {
    **BERT,
    "model": {"type": "gpt", "gpt": {"layers": 2, "heads": 2, "hidden_size": 32}, "hidden_dropout": 0.1, "attention_dropout": 0.1},
    "data": {"train": {"path": "tests/data/pairs.tsv", "format": "text"}, "validation_fraction": 0.2, "tokenizer": {"type": "byte"},
             "max_length": 32},
    "train": {"steps": 25, "batch_size": 32},
    "evaluation": {"every": 4, "metrics": ["loss", "perplexity"], "best": "loss", "early_stop_patience": 100},
}


class Resume(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_resume_")
        self.path = Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def command(self, name, job, *flags):
        file = self.path / f"{name}.yaml"
        file.write_text(json.dumps({**job, "job": {**job["job"], "output_dir": str(self.path / name)}}))  # JSON is YAML
        return [TRAINER, "run", str(file), *flags]

    def run_job(self, name, job, *flags, code=0):
        result = subprocess.run(self.command(name, job, *flags), cwd=ROOT, capture_output=True, text=True, timeout=240)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def records(self, name):
        return [json.loads(line) for line in (self.path / name / "metrics.jsonl").read_text().splitlines()]

    def weights(self, name, model="final"):
        return (self.path / name / model / "model.safetensors").read_bytes()

    def assert_same_run(self, first, second):
        """Weights to the byte, and every number of training that is no time."""
        # The best so far stays with the run that was gone on from.
        models = ["final"] + ["best"] * (self.path / second / "best").is_dir()
        for model in models:
            self.assertEqual(self.weights(first, model), self.weights(second, model), f"{model} of {first} and {second}")
        timeless = ("kind", "step", "steps", "epoch", "epochs", "loss", "grad_norm", "lr", "loss_scale", "skipped_steps",
                    "metrics", "samples", "last", "best")
        a, b = ([{key: record[key] for key in timeless if key in record} for record in self.records(name)]
                for name in (first, second))
        self.assertEqual(a, b)

    def check_every_way(self, job, steps, *flags):
        """From checkpoints of an uninterrupted run, each in an output directory of its own."""
        self.run_job("whole", job, *flags)
        for step in steps:
            with self.subTest(step=step):
                output = self.run_job(f"from_{step}", job, *flags, "--resume", str(self.path / f"whole/checkpoints/step_{step}"))
                self.assertIn(f"whole/checkpoints/step_{step}: step {step} of 25", output)
                self.assert_same_run("whole", f"from_{step}")

    def test_bert_goes_on_from_any_step(self):
        self.check_every_way(BERT, (1, 8, 11, 22, 25))  # also before an evaluation, at an epoch's end, when all is done

    def test_bert_of_two_processes_with_accumulation(self):
        self.check_every_way({**BERT, "train": {"steps": 25, "batch_size": 2, "gradient_accumulation": 2, "ema_decay": 0.9}},
                             (7, 11), "--nproc-per-node=2")

    def test_bert_in_fp16_by_token_budget(self):
        self.check_every_way({**BERT, "train": {"steps": 25, "batch_size": 8, "batch_tokens": 256, "precision": "fp16",
                                                "loss_scale": {"initial": 1e9, "growth_interval": 3}}}, (2, 9))

    def test_gpt_goes_on_from_any_step(self):
        self.check_every_way(GPT, (5, 16))

    def test_gpt_of_two_processes(self):
        self.check_every_way({**GPT, "data": {**GPT["data"], "windows": "random"}, "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}},
                             (13,), "--nproc-per-node=2")

    def test_another_number_of_ranks_continues_the_order_of_the_data(self):
        job = {**BERT, "train": {"steps": 25, "batch_size": 6}}
        self.run_job("whole", job)
        half = {**BERT, "train": {"steps": 25, "batch_size": 3}}
        output = self.run_job("two", half, "--nproc-per-node=2", "--resume", str(self.path / "whole/checkpoints/step_8"))
        self.assertIn("1 rank at", output)
        self.assertIn("train.batch_size: 6 -> 3", output)
        for a, b in zip(self.records("whole"), self.records("two")):
            if a["kind"] == "step":
                self.assertLess(abs(a["loss"] - b["loss"]), 1e-4 * a["loss"])

    def test_a_stopped_job_goes_on_when_it_is_asked_to(self):
        job = {**BERT, "train": {"steps": 200, "batch_size": 6}, "evaluation": {**BERT["evaluation"], "every": 50},
               "checkpoint": {}}
        self.run_job("whole", job)
        agent = subprocess.Popen(self.command("stopped", job), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.wait_for(lambda: self.last_step("stopped") >= 9, agent)
        agent.send_signal(signal.SIGTERM)
        output, _ = agent.communicate(timeout=120)
        self.assertEqual(agent.returncode, 75, output)
        step, = (self.path / "stopped/checkpoints").iterdir()
        self.assertIn(f"saved in {step}, from where --resume auto goes on; exit 75", output)
        # Its model serves as any other.
        self.run_job("next", {**BERT, "model": {**BERT["model"], "init": "pretrained", "pretrained": str(step)},
                              "train": {"steps": 6, "batch_size": 6}, "checkpoint": {}})
        output = self.run_job("stopped", job, "--resume", "auto")
        self.assertIn(f"going on from {step}", output)
        self.assert_same_run("whole", "stopped")
        # A new run that is not asked to go on sets all that aside.
        short = {**job, "train": {"steps": 6, "batch_size": 6}}
        self.run_job("stopped", short)
        self.assertTrue((self.path / "stopped/previous/checkpoints" / step.name / "state.json").is_file())
        self.assertFalse((self.path / "stopped/checkpoints").exists())
        output = self.run_job("stopped", job, "--resume", str(self.path / "stopped/previous/checkpoints"), code=5)
        self.assertIn("is in the directory that this run's predecessor goes to", output)

    def test_a_restarted_job_goes_on(self):
        job = {**BERT, "train": {"steps": 100, "batch_size": 3}, "evaluation": {**BERT["evaluation"], "every": 20},
               "checkpoint": {"every_steps": 5}}
        self.run_job("whole", job, "--nproc-per-node=2")
        agent = subprocess.Popen(self.command("killed", job, "--nproc-per-node=2", "--max-restarts=2"), cwd=ROOT,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for step in (12, 48):
            self.wait_for(lambda: self.last_step("killed") >= step, agent)
            os.kill(self.workers(agent)[-1], signal.SIGKILL)
            time.sleep(0.3)
        output, _ = agent.communicate(timeout=120)
        self.assertEqual(agent.returncode, 0, output)
        self.assertEqual(len(re.findall(r"going on from .*/checkpoints/step_\d+: ", output)), 2, output)
        self.assert_same_run("whole", "killed")
        self.assertEqual(sorted(path.name for path in (self.path / "killed/checkpoints").iterdir()), ["step_100", "step_95"])

    def test_kills_at_random_moments_lose_nothing(self):
        """SIGKILL to all workers and the agent: many of them within a save, since every step is saved."""
        for job, flags in ((BERT, ["--nproc-per-node=2"]), (GPT, [])):
            job = {**job, "train": {**job["train"], "steps": 60}, "evaluation": {**job["evaluation"], "every": 20},
                   "checkpoint": {"every_steps": 1, "keep_last": 1}}
            name = job["model"]["type"]
            self.run_job(f"{name}_whole", job, *flags)
            source = random.Random(name)
            reached = 0
            for _ in range(int(os.environ.get("KILLS", "6")) // 2):
                agent = subprocess.Popen(self.command(name, job, *flags, "--resume=auto"), cwd=ROOT, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True, start_new_session=True)
                begin = self.last_step(name)
                self.wait_for(lambda: agent.poll() is not None or self.last_step(name) > begin, agent, ended=True)
                time.sleep(source.uniform(0, 0.3))
                agent.kill()  # its workers die with it
                output, _ = agent.communicate(timeout=120)
                if reached > 0:
                    self.assertIn("going on from", output)
                directory = self.path / name / "checkpoints"
                steps = [int(path.name[5:]) for path in directory.glob("step_*")] if directory.is_dir() else []
                self.assertTrue(reached == 0 or max(steps, default=0) >= reached, f"nothing to resume from: {steps}")
                reached = max(steps, default=0)
            self.run_job(name, job, *flags, "--resume=auto")
            self.assert_same_run(f"{name}_whole", name)
            self.assertEqual([path.name for path in (self.path / name / "checkpoints").iterdir()], ["step_60"])

    def test_damage_is_named_and_passed_over(self):
        self.run_job("whole", BERT)
        shutil.copytree(self.path / "whole", self.path / "damaged")
        for step in range(21, 26):
            with open(self.path / f"damaged/checkpoints/step_{step}/optimizer.safetensors", "r+b") as file:
                file.seek(1000)
                file.write(b"damage")
        output = self.run_job("damaged", BERT, "--resume", "auto")
        self.assertRegex(output, r"passed over .*/step_25/optimizer.safetensors: got contents of checksum \w{8}; expected \w{8}")
        self.assertIn("step 20 of 25", output)
        self.assert_same_run("whole", "damaged")

    def test_checkpoints_are_listed_shown_and_verified(self):
        job = {**BERT, "checkpoint": {"every_steps": 10}}
        self.run_job("run", job)

        def checkpoint(action, path, code=0):
            result = subprocess.run([TRAINER, "checkpoint", action, str(path)], capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            return result.stdout + result.stderr
        run = self.path / "run"
        lines = checkpoint("ls", run).splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"run/checkpoints/step_10  step 10 of 25  epoch 0\.94  \d{4}-\d\d-\d\d .* MiB  1 rank$")
        shown = checkpoint("show", run / "checkpoints/step_20")
        for text in ("model.safetensors ", "loop.data_position", "    optimizer:\n      type: adamw\n"):
            self.assertIn(text, shown)
        self.assertEqual(checkpoint("verify", run).count("  whole\n"), 2)
        (run / "checkpoints/step_10/vocab.txt").write_text("damage")
        text = checkpoint("verify", run / "checkpoints", code=5)
        self.assertRegex(text, r"step_10/vocab.txt: got 6 bytes; expected \d+")
        self.assertEqual(text.count("  whole\n"), 1)
        self.assertIn("no checkpoint in it", checkpoint("ls", ROOT / "tests/data", code=2))

    def test_a_changed_job_is_told_or_refused(self):
        self.run_job("changed", BERT)
        output = self.run_job("changed", BERT, "--resume", "auto", "--set", "train.steps=27", "--set", "optimizer.lr=0.5")
        self.assertRegex(output, "is not quite that of .*/step_25: optimizer.lr: .* -> .*, train.steps: 25 -> 27")
        output = self.run_job("changed", BERT, "--resume", "auto", "--set", "data.max_length=32", code=5)
        self.assertIn("is of another job, so training cannot go on from it:\n  data.max_length: 64 -> 32", output)
        other = self.path / "other.tsv"
        rows = (ROOT / "tests/data/pairs.tsv").read_text().splitlines()
        other.write_text("\n".join(rows[:-1] + [rows[-1] + "."]) + "\n")
        output = self.run_job("changed", BERT, "--resume", "auto", "--set", f"data.train.path={other}", code=5)
        self.assertIn("was trained on other data: fingerprint of data.train", output)
        output = self.run_job("changed", BERT, "--resume", "/nowhere", code=5)
        self.assertIn("checkpoint.resume: got /nowhere; there is no such directory", output)

    def test_a_save_that_fails_fails_the_job_and_leaves_nothing_half_done(self):
        output = self.path / "full"
        output.mkdir()
        (output / "checkpoints").write_text("in the way")
        text = self.run_job("full", BERT, "--nproc-per-node=2", code=5)
        self.assertRegex(text, "checkpoint error: .*full/checkpoints")

    def last_step(self, name):
        try:
            lines = (self.path / name / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return 0
        steps = [json.loads(line).get("step", 0) for line in lines if line.endswith("}")]
        return max(steps, default=0)

    def wait_for(self, condition, agent, ended=False):
        deadline = time.monotonic() + 120
        while not condition():
            if agent.poll() is not None and not ended:
                self.fail(agent.stdout.read())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)

    def workers(self, agent):
        def is_worker(pid):
            is_store = b"__store" in Path(f"/proc/{pid}/cmdline").read_bytes()
            return not is_store and Path(f"/proc/{pid}/comm").read_text() != "trainer-guard\n"
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        return [int(pid) for pid in children if is_worker(pid)]


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
