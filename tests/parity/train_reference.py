#!/usr/bin/env python3
"""Training losses of trainer against PyTorch + transformers, step by step: fp32, dropout off, data in the file's order.

  tests/parity/train_reference.py TRAINER [--model DIRECTORY]

TRAINER is the executable. Every case trains the same global batches, split over processes and accumulation in another
way; each step's loss must equal the reference's to 1e-5, the gradient norm to 1e-4 and the learning rate to 1e-6,
relative. Exit code 1 when one doesn't.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/peers"))
import bert_hf  # noqa: E402
import torch  # noqa: E402
from transformers import AutoConfig, BertForSequenceClassification  # noqa: E402
from transformers.utils import logging  # noqa: E402

PAIRS = ROOT / "tests/data/pairs.tsv"
TOLERANCES = {"loss": 1e-5, "grad_norm": 1e-4, "lr": 1e-6}
# Processes, samples a micro-batch, micro-batches a step. 64 pairs: in the last three the epoch ends with a short batch
# or accumulation window, and in the last with ranks that have nothing in it.
CASES = [(1, 16, 1), (1, 4, 4), (2, 8, 1), (2, 2, 4), (1, 4, 3), (3, 5, 1), (3, 1, 5)]


def make_model(source, directory):
    """A Hugging Face directory with every weight, the classifier's too: from `source`, at random where it has none."""
    torch.manual_seed(0)
    if (source / "model.safetensors").exists():
        model = BertForSequenceClassification.from_pretrained(source, num_labels=2)
    else:
        model = BertForSequenceClassification(AutoConfig.from_pretrained(source, num_labels=2))
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, directory)
    model.save_pretrained(directory)


def reference(model, global_batch, steps):
    records = []
    bert_hf.train(bert_hf.arguments([
        "--model", str(model), "--train", str(PAIRS), "--batch-size", str(global_batch), "--steps", str(steps),
        "--warmup-steps", "3", "--dropout", "0", "--precision", "fp32", "--device", "cpu", "--no-shuffle", "--every", "1",
        "--max-length", "64"]), records.append)
    return records


def ours(trainer, model, case, steps, directory):
    processes, batch_size, accumulation = case
    job = directory / "job.yaml"
    job.write_text(json.dumps({  # JSON is YAML
        "job": {"name": "parity", "output_dir": str(directory / "run")},
        "model": {"type": "bert_classifier", "pretrained": str(model), "num_labels": 2, "hidden_dropout": 0.0,
                  "attention_dropout": 0.0, "classifier_dropout": 0.0},
        "data": {"train": {"path": str(PAIRS), "text": "#1 String", "text_pair": "#2 String", "label": "Quality"},
                 "max_length": 64, "shuffle": False},
        "train": {"steps": steps, "batch_size": batch_size, "gradient_accumulation": accumulation, "precision": "fp32",
                  "clip_grad_norm": 1.0},
        "optimizer": {"type": "adamw", "lr": 5e-5, "weight_decay": 0.01},
        "schedule": {"type": "linear", "warmup_steps": 3},
        "evaluation": {"every": "never"},
        "launch": {"nproc_per_node": processes},
        "checkpoint": {"save_final": False, "save_best": False},
        "logging": {"every_steps": 1},
        "hardware": {"device": "cpu"}}), encoding="utf-8")
    done = subprocess.run([trainer, "run", job], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\ntrainer run: exit code {done.returncode}")
    with open(directory / "run/metrics.jsonl", encoding="utf-8") as file:
        return [record for record in map(json.loads, file) if record["kind"] == "step"]


def differences(got, expected):
    """Lines about what differs more than its tolerance, and the largest relative difference of the losses."""
    if [r["step"] for r in got] != [r["step"] for r in expected]:
        return [f"steps {[r['step'] for r in got]}, expected {[r['step'] for r in expected]}"], float("nan")
    lines, largest = [], 0.0
    for a, b in zip(got, expected):
        for key, tolerance in TOLERANCES.items():
            difference = abs(a[key] - b[key]) / max(abs(b[key]), 1e-12)
            if key == "loss":
                largest = max(largest, difference)
            if not difference <= tolerance:  # NaN too
                lines.append(f"step {a['step']}: {key} {a[key]:.9g}, expected {b[key]:.9g} ({difference:.1e} relative)")
    return lines, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "tests/data/tiny_bert", help="Hugging Face directory")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "model"
        model.mkdir()
        make_model(args.model, model)
        references = {}
        for case in CASES:
            processes, batch_size, accumulation = case
            global_batch = processes * batch_size * accumulation
            if global_batch not in references:
                references[global_batch] = reference(model, global_batch, args.steps)
            directory = pathlib.Path(scratch) / f"{processes}x{batch_size}x{accumulation}"
            directory.mkdir()
            lines, largest = differences(ours(args.trainer, model, case, args.steps, directory), references[global_batch])
            print(f"{'FAILED' if lines else 'ok':6}  {processes} processes, batch {batch_size}, accumulation {accumulation}: "
                  f"losses within {largest:.1e} of the reference's", *lines, sep="\n        ", flush=True)
            failed |= bool(lines)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
