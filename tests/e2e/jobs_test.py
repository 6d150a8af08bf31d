"""Whole jobs, from the command line to files: what a user sees. Expected values are ratios and equalities between runs
that must agree by construction (any world size, any accumulation), and the exact text of errors.

    python tests/e2e/jobs_test.py TRAINER_BINARY [TEST...]
"""

import json
import os
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

# Dropout on: its masks depend on the sample, not on the rank, so runs at different world sizes agree with it too.
JOB = """
job: {{name: e2e, seed: 7, output_dir: {output}}}
model: {{type: bert_classifier, pretrained: tests/data/tiny_bert, init: random}}
data:
  train: {{path: tests/data/pairs.tsv, text: "#1 String", text_pair: "#2 String", label: Quality}}
  validation: {{path: tests/data/pairs.tsv}}
  max_length: 64
train: {{steps: 9, batch_size: 6}}
optimizer: {{lr: 1.0e-3}}
evaluation: {{every: epoch, metrics: [loss, accuracy, f1], best: loss}}
logging: {{every_steps: 1}}
"""


class Jobs(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_e2e_")
        self.path = Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def command(self, name, *settings, flags=()):
        job = self.path / f"{name}.yaml"
        job.write_text(JOB.format(output=self.path / name))
        sets = [argument for setting in settings for argument in ("--set", setting)]
        return [TRAINER, "run", str(job), *flags, *sets]

    def run_job(self, name, *settings, flags=(), code=0, timeout=120):
        result = subprocess.run(self.command(name, *settings, flags=flags), cwd=ROOT, capture_output=True, text=True,
                                timeout=timeout)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def records(self, name, kind="step"):
        lines = (self.path / name / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def losses(self, name):
        return [record["loss"] for record in self.records(name)]

    def assert_same_losses(self, first, second, relative):
        a, b = self.losses(first), self.losses(second)
        self.assertEqual(len(a), len(b))
        for step, (x, y) in enumerate(zip(a, b), 1):
            self.assertLessEqual(abs(x - y), relative * abs(x), f"step {step}: {x} in {first}, {y} in {second}")

    def test_a_run_leaves_spec_metrics_logs_and_models(self):
        self.run_job("run")
        output = self.path / "run"
        self.assertEqual(len(self.losses("run")), 9)
        self.assertEqual(len(self.records("run", "summary")), 1)
        evaluations = self.records("run", "evaluation")
        self.assertEqual(evaluations[-1]["step"], 9)
        for model in ("final", "best"):
            for file in ("config.json", "model.safetensors", "vocab.txt"):
                self.assertTrue((output / model / file).is_file(), f"{model}/{file}")
        self.assertTrue((output / "logs/attempt_0/0/stdout.log").stat().st_size > 0)
        # The resolved spec is a spec: the same run again.
        again = subprocess.run([TRAINER, "run", str(output / "job.yaml"), "--set", f"job.output_dir={self.path}/again"],
                               cwd=ROOT, capture_output=True, text=True, timeout=120)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.losses("run"), self.losses("again"), "the same job twice is the same to the bit")

    def test_a_rerun_sets_the_earlier_run_aside_and_a_faulty_one_leaves_it(self):
        self.run_job("twice")
        first = self.losses("twice")
        self.run_job("twice", "data.train.label=Nope", code=3)
        self.assertEqual(self.losses("twice"), first)
        self.run_job("twice", "train.steps=2", "evaluation.best=null")
        self.assertEqual(len(self.losses("twice")), 2)
        self.assertFalse((self.path / "twice/best").exists())
        self.assertEqual(self.losses("twice/previous"), first)
        self.assertTrue((self.path / "twice/previous/best/model.safetensors").is_file())
        # Which run is gone with a third one, it says.
        result = self.run_job("twice", "train.steps=2", "evaluation.best=null")
        self.assertRegex(result.stdout, "removing (best, final|final, best) of the run before the last one from .*previous\n")
        # Runs that leave no model don't take the place of one that did.
        second = self.losses("twice")
        for _ in range(3):
            self.run_job("twice", "train.steps=1", "evaluation.best=null", "checkpoint.save_final=false")
        self.assertEqual(self.losses("twice/previous"), second)
        self.assertTrue((self.path / "twice/previous/final/model.safetensors").is_file())

    def test_a_restart_leaves_the_earlier_runs_results_where_the_first_attempt_put_them(self):
        self.run_job("kept", "train.steps=2")
        first = self.losses("kept")
        logs = self.path / "kept/logs"
        shutil.rmtree(logs)  # the first run's: a second attempt is seen by what it logs
        agent = subprocess.Popen(
            self.command("kept", "train.steps=1000000", flags=["--nproc-per-node=2", "--max-restarts=1"]), cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def wait_for_step(attempt):
            log = logs / f"attempt_{attempt}/0/stdout.log"
            deadline = time.monotonic() + 60
            while not (log.is_file() and "step 1" in log.read_text()):
                self.assertIsNone(agent.poll())
                self.assertLess(time.monotonic(), deadline, f"no step in attempt {attempt}")
                time.sleep(0.05)

        wait_for_step(0)
        os.kill(self.workers(agent)[1], signal.SIGKILL)
        wait_for_step(1)
        agent.send_signal(signal.SIGINT)
        agent.communicate(timeout=30)
        self.assertEqual(self.losses("kept/previous"), first)
        self.assertTrue((self.path / "kept/previous/final/model.safetensors").is_file())

    def test_early_stop_ends_the_job_and_says_so(self):
        result = self.run_job("early", "optimizer.lr=1.0e-30", "train.steps=100", "evaluation.every=2",
                              "evaluation.early_stop_patience=2")
        self.assertIn("stopped early at step 6 of 100: loss was no better in 2 evaluations", result.stdout)
        self.assertEqual(self.records("early", "summary")[0]["steps"], 6)

    def test_world_size_and_accumulation_do_not_change_the_updates(self):
        # A global batch of 12 in all; 64 pairs, so that the last step of an epoch is ragged (4 samples).
        self.run_job("one", "train.batch_size=12")
        self.run_job("two", "train.batch_size=6", flags=["--nproc-per-node=2"])
        self.run_job("three", "train.batch_size=4", flags=["--nproc-per-node=3"])
        self.run_job("accumulated", "train.batch_size=3", "train.gradient_accumulation=4")
        self.assertIn('nproc_per_node: "2"', (self.path / "two/job.yaml").read_text().replace("'", '"'))
        self.run_job("both", "train.batch_size=3", "train.gradient_accumulation=2", flags=["--nproc-per-node=2"])
        # fp32 sums in another order: ~1e-7 a sum, grown by 9 updates of Adam at lr 1e-3.
        for other in ("two", "three", "accumulated", "both"):
            self.assert_same_losses("one", other, 2e-5)
        for name in ("two", "three", "both"):
            one, other = self.records("one", "evaluation")[-1], self.records(name, "evaluation")[-1]
            self.assertEqual(one["metrics"]["accuracy"], other["metrics"]["accuracy"])

    def test_token_budget_batches_train_every_sample(self):
        self.run_job("tokens", "train.batch_tokens=256", "train.batch_size=16", "train.steps=null", "train.epochs=2")
        self.assertAlmostEqual(self.records("tokens", "summary")[0]["epochs"], 2.0)

    def test_low_precision_follows_fp32(self):
        self.run_job("fp32")
        for precision, relative in (("bf16", 3e-2), ("fp16", 3e-2)):
            self.run_job(precision, f"train.precision={precision}")
            self.assert_same_losses("fp32", precision, relative)

    def test_data_faults_name_the_file_and_line_and_exit_3(self):
        bad = self.path / "bad.tsv"
        rows = (ROOT / "tests/data/pairs.tsv").read_text().splitlines()
        bad.write_text("\n".join(rows[:5] + ["1\tonly three\tcolumns"] + rows[5:]) + "\n")
        result = self.run_job("bad", f"data.train.path={bad}", code=3)
        self.assertIn(f"{bad}:6: 3 columns, expected 5", result.stderr)
        result = self.run_job("none", "data.train.path=/nowhere.tsv", code=2)
        self.assertIn('data.train.path: got "/nowhere.tsv"; there is no such file', result.stderr)

    def test_spec_faults_exit_2_before_anything_is_written(self):
        result = self.run_job("spec", "train.batch_sze=3", code=2)
        self.assertIn("did you mean batch_size?", result.stderr)
        self.assertFalse((self.path / "spec").exists())

    def test_gradients_that_stay_nan_end_the_job_with_6(self):
        result = self.run_job("nan", "optimizer.lr=1.0e+30", "train.max_skipped_steps=2", "train.steps=40", code=6)
        self.assertIn("in a row", result.stderr)

    def test_a_loss_that_does_not_fall_ends_with_6_when_demanded(self):
        result = self.run_job("flat", "optimizer.lr=1.0e-30", "train.require_loss_decrease=true",
                              "logging.every_steps=9", code=6)
        self.assertIn("the loss did not fall", result.stderr)

    def test_smoke_job_learns(self):
        result = subprocess.run([TRAINER, "run", "configs/smoke.yaml", "--set", f"job.output_dir={self.path}/smoke"],
                                cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        losses = self.losses("smoke")
        self.assertLess(losses[-1], losses[0])

    def start(self, name, *settings, flags=()):
        process = subprocess.Popen(self.command(name, *settings, flags=flags), cwd=ROOT, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        metrics = self.path / name / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.is_file() and metrics.read_text().count('"step"') > 3):
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline, "the job did not start to train")
            time.sleep(0.05)
        return process

    def children(self, agent):
        return [int(child) for child in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]

    def workers(self, agent):
        def is_worker(pid):
            is_store = b"__store" in Path(f"/proc/{pid}/cmdline").read_bytes()
            return not is_store and Path(f"/proc/{pid}/comm").read_text() != "trainer-guard\n"
        return [pid for pid in self.children(agent) if is_worker(pid)]

    def assert_gone(self, pids):
        deadline = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
                  for pid in pids):
            self.assertLess(time.monotonic(), deadline, f"orphans of {pids}")
            time.sleep(0.05)

    def test_a_killed_worker_ends_the_job_and_is_named_last(self):
        agent = self.start("killed", "train.steps=1000000", flags=["--nproc-per-node=2"])
        children, pids = self.children(agent), self.workers(agent)
        self.assertEqual(len(pids), 2)
        os.kill(pids[1], signal.SIGKILL)
        _, errors = agent.communicate(timeout=30)
        self.assertEqual(agent.returncode, 128 + signal.SIGKILL)
        self.assertRegex(errors[errors.rindex("FAILED"):], rf"FAILED  node 0 rank \d \(pid {pids[1]}\)")
        self.assert_gone(children)

    def test_a_worker_that_crashes_tells_where(self):
        agent = self.start("crashed", "train.steps=1000000", flags=["--nproc-per-node=2"])
        pids = self.workers(agent)
        os.kill(pids[1], signal.SIGSEGV)
        _, errors = agent.communicate(timeout=60)
        self.assertEqual(agent.returncode, 128 + signal.SIGSEGV)
        self.assertIn(f"killed by SIGSEGV (segmentation fault), sent by process {os.getpid()}",
                      errors[errors.rindex("FAILED"):])
        self.assert_gone(pids)

    def test_ctrl_c_saves_and_ends_all_without_orphans(self):
        agent = self.start("stopped", "train.steps=1000000", flags=["--nproc-per-node=2"])
        pids = self.children(agent)
        agent.send_signal(signal.SIGINT)
        output, errors = agent.communicate(timeout=60)
        self.assertEqual(agent.returncode, 75, errors)
        self.assertRegex(output, r"preempted at step \d+: saved in .*/stopped/checkpoints/step_\d+, from where --resume auto goes on; exit 75")
        self.assertEqual(len(list((self.path / "stopped").glob("checkpoints/step_*/model.safetensors"))), 1)
        self.assert_gone(pids)

    def test_two_jobs_at_once_do_not_meet(self):
        first = self.start("first", "train.steps=60", flags=["--nproc-per-node=2"])
        second = self.start("second", "train.steps=60", flags=["--nproc-per-node=2"])
        for process in (first, second):
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(self.losses("first"), self.losses("second"))

    def test_two_jobs_in_one_output_dir_are_refused(self):
        first = self.start("shared", "train.steps=1000000")
        result = subprocess.run(self.command("shared"), cwd=ROOT, capture_output=True, text=True, timeout=60)
        first.kill()
        first.communicate()
        self.assertEqual(result.returncode, 2)
        self.assertIn("is in use by another run", result.stderr)


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
