"""Whole jobs of language models: a text to a model that continues it, from one job to the next, and what a user sees of data
that does not fit.

    python tests/e2e/gpt_jobs_test.py TRAINER_BINARY [TEST...]
"""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""

JOB = {
    "job": {"name": "gpt", "seed": 7},
    "model": {"type": "gpt", "gpt": {"layers": 2, "heads": 4, "hidden_size": 64}},
    "data": {"train": {"path": "text.txt"}, "validation_fraction": 0.1, "tokenizer": {"type": "char"}, "max_length": 32},
    "train": {"steps": 90, "batch_size": 16},
    "optimizer": {"lr": 1e-3, "beta2": 0.99},
    "schedule": {"type": "constant"},
    "evaluation": {"every": 30, "metrics": ["loss", "perplexity", "bits_per_byte"], "best": "loss"},
    "logging": {"every_steps": 1},
    "hardware": {"device": "cpu"},
}
TOKENS = {"model": {"gpt": {"vocab_size": 320}}, "data": {"train": {"path": "tokens.bin"}, "tokenizer": None},
          "train": {"steps": 4}, "evaluation": {"every": 4, "metrics": ["loss"]}}
VOCAB = 320


def merged(base, other):
    """`other` over `base`; None stands for a key that is not said."""
    out = dict(base)
    for key, value in other.items():
        out[key] = merged(out.get(key) or {}, value) if isinstance(value, dict) else value
    return out


def without_none(tree):
    return {key: without_none(value) if isinstance(value, dict) else value
            for key, value in tree.items() if value is not None}


class GptJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="trainer_gpt_jobs_")
        cls.path = Path(cls.directory.name)
        with open(ROOT / "tests/data/pairs.tsv", encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            texts = [row[column] for row in rows for column in ("#1 String", "#2 String")]
        cls.documents = [text.encode("ascii", "ignore").decode() for text in texts]  # a character is a byte
        cls.text = "\n".join(cls.documents)
        (cls.path / "text.txt").write_text(cls.text)
        cls.rng = np.random.default_rng(3)
        cls.rng.integers(0, VOCAB, 3000).astype("<u2").tofile(cls.path / "tokens.bin")

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def command(self, name, *changes, command="run", flags=()):
        job = merged(JOB, {"job": {"output_dir": str(self.path / name)}})
        for change in changes:
            job = merged(job, change)
        (self.path / f"{name}.yaml").write_text(json.dumps(without_none(job)))  # JSON is YAML
        return [TRAINER, command, f"{name}.yaml", *flags]

    def trainer(self, command, code=0):
        result = subprocess.run(command, cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def run_job(self, name, *changes, flags=(), code=0):
        return self.trainer(self.command(name, *changes, flags=flags), code)

    def records(self, name, kind):
        lines = (self.path / name / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def losses(self, name):
        return [record["loss"] for record in self.records(name, "step")]

    def files(self, name):
        return sorted(path.name for path in (self.path / name).iterdir())

    def generate(self, model, *arguments):
        result = self.trainer([TRAINER, "generate", model, "--json", "--threads", "1", *arguments])
        return json.loads(result.stdout)

    # A text becomes a model, which becomes another.

    def test_characters_are_learned_and_the_model_goes_on_elsewhere(self):
        self.run_job("char")
        losses, vocab = self.losses("char"), len(set(self.text))
        self.assertAlmostEqual(losses[0], math.log(vocab), delta=0.3)
        self.assertLess(losses[-1], 0.8 * math.log(vocab))
        evaluation = self.records("char", "evaluation")[-1]
        self.assertEqual(evaluation["step"], 90)
        self.assertLess(evaluation["metrics"]["loss"], 0.85 * math.log(vocab))
        self.assertAlmostEqual(evaluation["metrics"]["perplexity"], math.exp(evaluation["metrics"]["loss"]), places=4)
        self.assertAlmostEqual(evaluation["metrics"]["bits_per_byte"], evaluation["metrics"]["loss"] / math.log(2), places=5)
        for model in ("char/final", "char/best"):
            self.assertEqual(self.files(model), ["config.json", "model.safetensors", "trainer_tokenizer.json"])
        config = json.loads((self.path / "char/final/config.json").read_text())
        self.assertEqual([config["model_type"], config["vocab_size"]], ["gpt2", vocab])
        line = self.generate("char/final", "--prompt", "The ", "-n", "50")
        self.assertEqual(len(line["text"]), 50)
        self.assertLessEqual(set(line["text"]), set(self.text))

        # Another job goes on from it, with its tokenizer.
        (self.path / "other.txt").write_text("\n".join(reversed(self.documents)))
        tuned = {"model": {"gpt": None, "pretrained": "char/final"}, "train": {"steps": 5}, "evaluation": {"every": 5},
                 "data": {"train": {"path": "other.txt"}, "tokenizer": None}}
        self.run_job("tuned", tuned)
        self.assertLess(self.losses("tuned")[0], losses[0] - 0.5)
        self.assertEqual(self.files("tuned/final"), self.files("char/final"))
        self.assertEqual((self.path / "tuned/final/trainer_tokenizer.json").read_text(),
                         (self.path / "char/final/trainer_tokenizer.json").read_text())
        # What it has no characters for is told, with its place.
        (self.path / "strange.txt").write_text(self.text + "\né")
        result = self.run_job("strange", tuned, {"data": {"train": {"path": "strange.txt"}}}, code=3)
        self.assertIn(f'strange.txt: line {len(self.documents) + 1}, column 1 (byte {len(self.text) + 1}): character "é"',
                      result.stderr)

    def test_prepared_tokens_train_as_the_text_does_and_bring_their_tokenizer(self):
        self.trainer([TRAINER, "prepare", "text.txt", "--output", "prepared", "--tokenizer", "char",
                      "--validation-fraction", "0.1"])
        few = {"train": {"steps": 12}, "evaluation": {"every": 12}}
        self.run_job("of_text", few)
        self.run_job("of_tokens", few, {"data": {"train": {"path": "prepared_train"}, "tokenizer": None, "validation_fraction": 0,
                                                 "validation": {"path": "prepared_validation"}}})
        self.assertEqual(self.losses("of_tokens"), self.losses("of_text"))
        self.assertEqual(self.records("of_tokens", "evaluation")[0]["metrics"],
                         self.records("of_text", "evaluation")[0]["metrics"])
        self.assertEqual(self.files("of_tokens/final"), self.files("of_text/final"))
        self.assertEqual(len(self.generate("of_tokens/final", "--prompt", "And ", "-n", "20")["text"]), 20)
        # Tokens of another tokenizer than the model's are refused.
        (self.path / "few.txt").write_text(self.text.lower())
        self.trainer([TRAINER, "prepare", "few.txt", "--output", "few", "--tokenizer", "char"])
        self.refused("other_tokens", 2, "few: its tokens were made with another tokenizer",
                     {"model": {"gpt": None, "pretrained": "of_text/final"},
                      "data": {"train": {"path": "few"}, "tokenizer": None}}, commands=("run", "check"))

    def test_a_llama_of_bytes_with_documents_apart(self):
        (self.path / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in self.documents))
        self.run_job("llama", {
            "model": {"gpt": {"kv_heads": 2, "norm": "rms", "positions": "rope", "activation": "swiglu", "bias": False,
                              "intermediate_size": 96, "tie_embeddings": False}},
            "data": {"train": {"path": "documents.jsonl"}, "tokenizer": {"type": "byte"}, "documents": "separate"},
            "train": {"steps": 60, "recompute": "block"}})
        self.assertLess(self.losses("llama")[-1], 0.65 * math.log(257))
        config = json.loads((self.path / "llama/final/config.json").read_text())
        self.assertEqual([config["model_type"], config["eos_token_id"]], ["llama", 256])
        self.assertEqual(self.generate("llama/final", "--prompt", "The ", "-n", "9", "--ignore-eos")["new_tokens"], 9)

    def test_two_ranks_make_the_updates_of_one(self):
        few = {"train": {"steps": 12}, "evaluation": {"every": 12}, "model": {"hidden_dropout": 0.1, "attention_dropout": 0.1},
               "data": {"windows": "random"}}
        self.run_job("one", few)
        self.run_job("two", few, {"train": {"batch_size": 8}}, flags=["--nproc-per-node=2"])
        for a, b in zip(self.losses("one"), self.losses("two"), strict=True):
            self.assertLessEqual(abs(a - b), 2e-5 * a)
        one, two = (self.records(name, "evaluation")[0]["metrics"]["loss"] for name in ("one", "two"))
        self.assertLessEqual(abs(one - two), 2e-5 * one)

    # Evaluation.

    def test_evaluation_takes_the_last_part_or_some_samples_of_it(self):
        # The last fifth is other than the rest, so that a model of the rest knows nothing of it.
        cut = int(0.8 * 3000)
        ids = np.concatenate([np.full(cut, 5), self.rng.integers(100, VOCAB, 3000 - cut)])
        ids.astype("<u2").tofile(self.path / "parted.bin")
        parted = merged(TOKENS, {"data": {"train": {"path": "parted.bin"}, "validation_fraction": 0.2},
                                 "train": {"steps": 60}, "evaluation": {"every": 60}})
        self.run_job("parted", parted)
        self.assertLess(self.losses("parted")[-1], 0.1)
        windows = math.ceil((600 - 1) / 32)
        evaluation = self.records("parted", "evaluation")[0]
        self.assertGreater(evaluation["metrics"]["loss"], math.log(VOCAB - 100))
        self.assertEqual(evaluation["samples"], windows)
        self.run_job("some", parted, {"evaluation": {"samples": 5}})
        self.assertEqual(self.records("some", "evaluation")[0]["samples"], 5)
        self.assertNotEqual(self.records("some", "evaluation")[0]["metrics"], evaluation["metrics"])

    # Faults of data: before the first step, in run and check alike, which open data by one function.

    def refused(self, name, code, message, *changes, commands=("check",)):
        for command in commands:
            result = self.trainer(self.command(name, *changes, command=command), code)
            self.assertIn(message, result.stderr, command)
            for unclear in ("internal error", "frame #", "terminate", "std::"):
                self.assertNotIn(unclear, result.stderr)
        self.assertFalse((self.path / name / "metrics.jsonl").exists())

    def write(self, name, data):
        (self.path / name).write_bytes(data)
        return {"data": {"train": {"path": name}}}

    def test_tokens_that_do_not_fit_the_model_are_refused(self):
        ids = np.full(3000, 1, dtype="<u2")
        ids[1234] = 50256
        self.refused("beyond", 3, "beyond.bin: token 1234: got id 50256; expected 0 to 319, the model's vocabulary", TOKENS,
                     self.write("beyond.bin", ids.tobytes()), commands=("run", "check"))
        gpt2 = {"data": {"tokenizer": {"path": str(ROOT / "assets/gpt2-tokenizer")}}}
        ids[1234] = 50257
        self.refused("beyond_gpt2", 3, "token 1234: got id 50257; expected 0 to 50256", TOKENS, gpt2,
                     {"model": {"gpt": {"vocab_size": None}}}, self.write("beyond_gpt2.bin", ids.tobytes()))
        self.refused("mismatch", 2, "model.gpt.vocab_size: got 320; the tokenizer has 50257 tokens", TOKENS, gpt2)
        self.refused("too_long", 3, "tokens.bin: 3000 tokens, expected at least 4001 (data.max_length and one more)", TOKENS,
                     {"data": {"max_length": 4000, "validation_fraction": None},
                      "evaluation": {"every": "never", "best": None}})
        self.refused("validation", 3, "tokens.bin: 30 tokens for validation, expected at least 33 (data.max_length and one more)",
                     TOKENS, {"data": {"validation_fraction": 0.01}})

    def test_broken_token_files_are_refused(self):
        tokens = (self.path / "tokens.bin").read_bytes()
        header = np.zeros(256, dtype="<i4")
        header[:3] = 20240520, 1, 3000
        self.run_job("llmc", TOKENS, self.write("llmc.bin", header.tobytes() + tokens), {"train": {"steps": 1}})
        self.refused("llmc_cut", 3, "truncated: 6924 bytes, expected 7024: a header of 1024 and 3000 tokens of 2 bytes", TOKENS,
                     self.write("llmc_cut.bin", header.tobytes() + tokens[:-100]), commands=("run", "check"))
        header[1] = 3
        self.refused("llmc_version", 3, "wrong header: got version 3; expected 1", TOKENS,
                     self.write("llmc_version.bin", header.tobytes() + tokens))
        self.refused("llmc_none", 3, "wrong header: got magic ", TOKENS, {"data": {"train": {"format": "llm.c"}}})
        odd = self.write("odd.bin", tokens[:-1])
        self.refused("odd", 3, "odd.bin: 5999 bytes, without a header that is known", TOKENS, odd)
        self.refused("odd_nanogpt", 3, "odd.bin: truncated: 5999 bytes", TOKENS, odd, {"data": {"train": {"format": "nanogpt"}}})
        self.refused("empty", 3, "empty.bin", TOKENS, self.write("empty.bin", b""))

    def test_what_needs_a_tokenizer_says_so(self):
        self.refused("no_bytes", 2, "evaluation.metrics: got bits_per_byte, but the tokens' tokenizer is not known", TOKENS,
                     {"evaluation": {"metrics": ["loss", "bits_per_byte"]}}, commands=("run", "check"))
        self.refused("no_ends", 2, "data.documents: got separate, but where documents end in tokens.bin is not known", TOKENS,
                     {"data": {"documents": "separate"}})
        self.refused("no_tokenizer", 2, "data.tokenizer: got auto without a path", {"data": {"tokenizer": None}})
        self.refused("nowhere", 2, 'data.tokenizer.path: got "/nowhere"; there is no such file or directory',
                     {"data": {"tokenizer": {"type": "bpe", "path": "/nowhere"}}})
        with open("/dev/full", "w") as full:
            result = subprocess.run(self.command("full", command="check"), cwd=self.path, stdout=full,
                                    stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertIn("cannot write to standard output: No space left on device", result.stderr)

    def test_a_stopped_job_leaves_a_model_that_another_starts_from(self):
        agent = subprocess.Popen(self.command("stopped", {"train": {"steps": 1000000}, "evaluation": {"every": "never", "best": None}},
                                              flags=["--nproc-per-node=2"]),
                                 cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = self.path / "stopped/metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.is_file() and metrics.read_text().count('"kind":"step"') > 30):
            self.assertIsNone(agent.poll(), agent.stderr.read() if agent.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline, "the job did not start to train")
            time.sleep(0.05)
        agent.send_signal(signal.SIGTERM)
        output, errors = agent.communicate(timeout=60)
        self.assertEqual(agent.returncode, 75, errors)
        self.assertRegex(output, r"preempted at step \d+: saved in .*/stopped/checkpoints/step_\d+, from where --resume auto goes on; exit 75")
        model, = (self.path / "stopped/checkpoints").glob("step_*")
        self.run_job("again", {"model": {"gpt": None, "pretrained": str(model)}, "data": {"tokenizer": None},
                               "train": {"steps": 2}, "evaluation": {"every": "never", "best": None}})
        self.assertLess(self.losses("again")[0], self.losses("stopped")[0] - 0.5)
        self.assertEqual(self.generate(str(model), "--prompt", "The ", "-n", "5")["new_tokens"], 5)


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
