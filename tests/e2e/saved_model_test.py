"""trainer eval and trainer predict: against the run's own evaluation, and against transformers' logits of the saved model; the
same on any number of ranks; and what a user sees of errors.

    python tests/e2e/saved_model_test.py TRAINER_BINARY [TEST...]
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pyarrow.parquet
import torch
from sklearn import metrics
from transformers import AutoModelForSequenceClassification, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
TRAINER = ""

BERT = {
    "job": {"name": "bert", "seed": 7},
    "model": {"type": "bert_classifier", "pretrained": str(ROOT / "tests/data/tiny_bert"), "init": "random"},
    "data": {"train": {"path": "train.tsv", "text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
             "validation": {"path": "dev.tsv"}, "max_length": 64},
    "train": {"steps": 9, "batch_size": 6},
    "optimizer": {"lr": 1e-3},
    "evaluation": {"every": 3, "metrics": ["loss", "accuracy", "f1"], "best": "loss"},
    "hardware": {"device": "cpu"},
}
GPT = {
    "job": {"name": "gpt", "seed": 7},
    "model": {"type": "gpt", "gpt": {"layers": 1, "heads": 2, "hidden_size": 32}},
    "data": {"train": {"path": "text.txt"}, "validation": {"path": "more.txt"}, "tokenizer": {"type": "char"},
             "max_length": 32},
    "train": {"steps": 4, "batch_size": 16},
    "evaluation": {"every": 4, "metrics": ["loss", "bits_per_byte"], "best": "loss"},
    "hardware": {"device": "cpu"},
}
CLICKS = {
    "job": {"name": "clicks", "seed": 7},
    "model": {"type": "recommender", "recommender": {"architecture": "dlrm", "embedding_dim": 8, "bottom_mlp": [16],
                                                     "top_mlp": [16]}},
    "data": {"train": {"path": "train.csv"}, "validation": {"path": "dev.csv"},
             "features": {"label": "label", "dense": ["I*"], "sparse": ["a", "b", "item", "many"], "separator": "|",
                          "group": "b", "ids": "vocabulary"}},
    "train": {"steps": 6, "batch_size": 16},
    "optimizer": {"lr": 1e-2},
    "evaluation": {"every": 3, "batch_size": 8, "best": "auc",
                   "metrics": ["loss", "auc", "log_loss", "normalized_entropy", "calibration", "grouped_auc"]},
    "hardware": {"device": "cpu"},
}


def trainer(*arguments, code=0, cwd, env=()):
    result = subprocess.run([TRAINER, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120,
                            env=os.environ | dict(env))
    assert result.returncode == code, (arguments, result.returncode, result.stdout, result.stderr)
    return result


class SavedModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="trainer_saved_")
        cls.path = Path(cls.directory.name)
        pairs = (ROOT / "tests/data/pairs.tsv").read_text().splitlines(keepends=True)
        (cls.path / "train.tsv").write_text("".join(pairs[:40]))
        (cls.path / "dev.tsv").write_text("".join(pairs[:1] + pairs[30:]))
        text = (ROOT / "tests/data/pairs.tsv").read_text()
        (cls.path / "text.txt").write_text(text)
        (cls.path / "more.txt").write_text(text[1000:3000])
        clicks = (ROOT / "tests/data/recommender/clicks.csv").read_text().splitlines(keepends=True)
        (cls.path / "train.csv").write_text("".join(clicks[:100]))
        (cls.path / "dev.csv").write_text("".join(clicks[:1] + clicks[90:]))  # with ids that training never saw
        for job in (BERT, GPT, CLICKS):
            (cls.path / f"{job['job']['name']}.yaml").write_text(json.dumps(job))  # JSON is YAML
            trainer("run", f"{job['job']['name']}.yaml", cwd=cls.path)
        # What they were trained on is not needed any more.
        for file in ("train.tsv", "text.txt", "train.csv"):
            (cls.path / file).unlink()
        with open(cls.path / "dev.tsv", newline="") as file:
            cls.rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_trainer(self, *arguments, **more):
        return trainer(*arguments, cwd=self.path, **more)

    def evaluation(self, *arguments):
        self.run_trainer("eval", *arguments)
        return json.loads((self.path / "runs" / arguments[0].removesuffix(".yaml") / "evaluation.json").read_text())

    def predictions(self, *arguments, file="p.csv"):
        self.run_trainer("predict", "bert.yaml", "--output", file, *arguments)
        with open(self.path / file, newline="") as lines:
            return list(csv.DictReader(lines))

    def best(self, name):
        lines = map(json.loads, (self.path / f"runs/{name}/metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == "evaluation" and line["best"]][-1]

    def test_eval_finds_what_the_run_found_on_any_number_of_ranks(self):
        for name, worlds in (("bert", (1, 3)), ("gpt", (2,)), ("clicks", (1, 2))):
            best = self.best(name)
            for ranks in worlds:
                found = self.evaluation(f"{name}.yaml", "--nproc-per-node", ranks)
                self.assertEqual(found["samples"], best["samples"])
                self.assertEqual(found["model"], f"runs/{name}/best")
                self.assertEqual(set(found["metrics"]), set(best["metrics"]))
                for metric, value in best["metrics"].items():
                    self.assertLess(abs(found["metrics"][metric] - value), 1e-5 * abs(value), (name, ranks, metric))

    def test_eval_of_another_model_file_and_by_the_resolved_job(self):
        result = self.run_trainer("eval", "runs/bert/job.yaml", "--model", "runs/bert/final", "--data", "dev.tsv", "--json",
                                  "found.json", "--set", "evaluation.metrics=[loss, mcc]")
        found = json.loads((self.path / "found.json").read_text())
        self.assertEqual(found["model"], "runs/bert/final")
        self.assertEqual(set(found["metrics"]), {"loss", "mcc"})
        self.assertIn(f"loss     {found['metrics']['loss']:.6g}", result.stdout)
        # A run's own logs are left.
        self.assertTrue((self.path / "runs/bert/logs/attempt_0/0/stdout.log").is_file())
        self.assertTrue((self.path / "runs/bert/logs/eval/attempt_0/0/stdout.log").is_file())

    def test_predictions_are_transformers_own(self):
        model = AutoModelForSequenceClassification.from_pretrained(self.path / "runs/bert/best").eval()
        tokenizer = AutoTokenizer.from_pretrained(self.path / "runs/bert/best")
        predicted = self.predictions()
        self.assertEqual(list(predicted[0]), ["row", "label", "prediction", "probability_0", "probability_1"])
        self.assertEqual([int(line["row"]) for line in predicted], list(range(len(self.rows))))
        with torch.no_grad():
            for line, row in zip(predicted, self.rows):
                inputs = tokenizer(row["#1 String"], row["#2 String"], truncation="longest_first", max_length=64,
                                   return_tensors="pt")
                expected = model(**inputs).logits[0].softmax(0)
                self.assertEqual(line["label"], row["Quality"])
                self.assertEqual(int(line["prediction"]), int(expected.argmax()))
                for i in (0, 1):
                    self.assertLess(abs(float(line[f"probability_{i}"]) - float(expected[i])), 1e-5)

    def test_predictions_are_the_same_on_any_number_of_ranks_in_any_format(self):
        one = self.predictions()
        others = {"three": self.predictions("--nproc-per-node", 3, file="three.csv")}
        self.run_trainer("predict", "bert.yaml", "--output", "p.parquet", "--nproc-per-node", 2)
        others["parquet"] = pyarrow.parquet.read_table(self.path / "p.parquet").to_pylist()
        self.assertEqual({"row": "int64", "label": "int64", "prediction": "int64", "probability_0": "float",
                          "probability_1": "float"},
                         {f.name: str(f.type) for f in pyarrow.parquet.read_schema(self.path / "p.parquet")})
        # As torchrun's worker.
        port = self.free_port()
        workers = [subprocess.Popen([TRAINER, "predict", "bert.yaml", "--output", "torchrun.csv"], cwd=self.path,
                                    env=os.environ | {"TORCHELASTIC_RUN_ID": "x", "RANK": str(r), "LOCAL_RANK": str(r),
                                                      "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
                                                      "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                                                      "MASTER_PORT": str(port)})
                   for r in (0, 1)]
        self.assertEqual([worker.wait(timeout=120) for worker in workers], [0, 0])
        with open(self.path / "torchrun.csv", newline="") as lines:
            others["torchrun"] = list(csv.DictReader(lines))
        for name, other in others.items():
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                for column in a:
                    self.assertAlmostEqual(float(a[column]), float(b[column]), delta=1e-5, msg=(name, a, b))

    @staticmethod
    def free_port():
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def test_a_file_without_labels_is_predicted_without_them(self):
        bare = self.path / "bare.tsv"
        bare.write_text("\n".join(["#1 String\t#2 String", *(r["#1 String"] + "\t" + r["#2 String"] for r in self.rows)]))
        self.assertEqual([{k: v for k, v in line.items() if k != "label"} for line in self.predictions()],
                         self.predictions("--data", bare, file="bare.csv"))
        result = self.run_trainer("eval", "bert.yaml", "--data", bare, code=3)
        self.assertIn('no column "Quality"', result.stderr)

    def test_predictions_of_clicks_have_the_metrics_that_eval_finds_by_scikit_learn(self):
        with open(self.path / "dev.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        labels = [int(row["label"]) for row in rows]
        found = self.evaluation("clicks.yaml")["metrics"]
        for ranks in (1, 2):
            self.run_trainer("predict", "clicks.yaml", "--output", "clicks.csv", "--nproc-per-node", ranks)
            with open(self.path / "clicks.csv", newline="") as file:
                predicted = list(csv.DictReader(file))
            self.assertEqual(list(predicted[0]), ["row", "label", "probability"])
            self.assertEqual([int(line["row"]) for line in predicted], list(range(len(rows))))
            self.assertEqual([int(line["label"]) for line in predicted], labels)
            probabilities = [float(line["probability"]) for line in predicted]
            self.assertAlmostEqual(found["auc"], metrics.roc_auc_score(labels, probabilities), delta=1e-9)
            self.assertAlmostEqual(found["log_loss"], metrics.log_loss(labels, probabilities), delta=1e-5)
            self.assertAlmostEqual(found["calibration"], sum(probabilities) / sum(labels), delta=1e-5)
        # Of the same rows without labels.
        columns = [name for name in rows[0] if name != "label"]
        with open(self.path / "bare.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self.run_trainer("predict", "clicks.yaml", "--data", "bare.csv", "--output", "clicks.parquet")
        bare = pyarrow.parquet.read_table(self.path / "clicks.parquet")
        self.assertEqual(bare.column_names, ["row", "probability"])
        for a, b in zip(bare["probability"].to_pylist(), probabilities):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_many_columns_are_written_in_several_parts(self):
        many = 12000  # outputs: a part is of 262144 values, 21 rows
        job = json.loads(json.dumps(BERT))
        job["job"]["name"] = "many"
        job["data"]["train"]["path"] = "dev.tsv"
        job["model"]["num_labels"] = many
        job["train"]["steps"] = 1
        job["evaluation"] = {"every": "never"}
        (self.path / "many.yaml").write_text(json.dumps(job))
        self.run_trainer("run", "many.yaml")
        self.run_trainer("predict", "many.yaml", "--output", "many.parquet", "--nproc-per-node", 2)
        file = pyarrow.parquet.ParquetFile(self.path / "many.parquet")
        self.assertGreater(file.num_row_groups, 1)
        self.assertEqual(file.read(["row"])["row"].to_pylist(), list(range(len(self.rows))))
        shutil.rmtree(self.path / "runs/many")

    def test_an_earlier_file_is_replaced_as_a_whole_and_a_failure_leaves_it(self):
        output = self.path / "kept.csv"
        output.write_text("before")
        bad = self.path / "bad.tsv"
        bad.write_text((self.path / "dev.tsv").read_text() + "too\tfew\n")
        self.run_trainer("predict", "bert.yaml", "--data", bad, "--output", output, code=3)
        self.assertEqual(output.read_text(), "before")
        self.assertEqual(len(self.predictions(file="kept.csv")), len(self.rows))
        self.assertEqual(list(self.path.glob("*.tmp*")), [])

    def test_what_is_missing_is_named_before_anything_starts(self):
        def refused(expected, *arguments, code=2):
            result = self.run_trainer(*arguments, code=code)
            self.assertIn(expected, result.stderr)
            self.assertNotIn("FAILED", result.stderr)

        refused("--output: got p.txt; expected a name that ends in .csv or .parquet", "predict", "bert.yaml", "--output",
                "p.txt")
        refused("--output: got no/p.csv; there is no directory no", "predict", "bert.yaml", "--output", "no/p.csv")
        refused("--output is required", "predict", "bert.yaml")
        refused("has neither best nor final", "eval", "bert.yaml", "--set", "job.output_dir=runs/none")
        refused("there is no data: the job has no data.validation.path", "eval", "bert.yaml", "--set", 'data.validation.path=""')
        refused('data.validation.path: got "none.tsv"; there is no such file', "eval", "bert.yaml", "--data", "none.tsv")
        refused("hint: trainer generate", "predict", "gpt.yaml", "--output", "p.csv")
        refused("model_type", "eval", "bert.yaml", "--model", "runs/gpt/best")

    def test_a_model_of_another_form_is_refused(self):
        result = self.run_trainer("eval", "bert.yaml", "--set", "model.problem_type=multi_label_classification", "--set",
                                  "evaluation.metrics=[loss]", code=2)
        self.assertIn("problem_type single_label_classification, and model.problem_type is multi_label_classification",
                      result.stderr)
        bare = self.path / "headless"
        shutil.copytree(self.path / "runs/bert/best", bare)
        from safetensors.torch import load_file, save_file
        weights = load_file(bare / "model.safetensors")
        save_file({k: v for k, v in weights.items() if not k.startswith("classifier")}, bare / "model.safetensors")
        result = self.run_trainer("predict", "bert.yaml", "--model", bare, "--output", "p.csv", code=2)
        self.assertIn("lacks 2 weights of this job's model, such as classifier.", result.stderr)


if __name__ == "__main__":
    TRAINER = str(Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
