#!/usr/bin/env python3
"""Development scores of the main job over seeds, trainer against PyTorch + transformers: same weights, data and
hyperparameters, each with its own data order, dropout and initial classifier.

  tests/parity/hf_score.py TRAINER [--data DIRECTORY] [--seeds 1 2 3]

About six minutes a run on two cores; for a bench, not for CI. Says whether our mean lies within the reference's spread,
widened by ours.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import word_overlap  # noqa: E402


def ours(args, seed, scratch):
    settings = {"job.seed": seed, "job.output_dir": scratch, "model.pretrained": args.model,
                "data.train.path": f"{args.data}/train.tsv", "data.validation.path": f"{args.data}/dev.tsv",
                "train.precision": args.precision, "train.epochs": args.epochs, "launch.nproc_per_node": args.processes,
                "train.batch_size": 16 // args.processes, "checkpoint.save_final": "false",
                "checkpoint.save_best": "false"}
    command = [args.trainer, "run", ROOT / "configs/bert_mrpc.yaml"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(f"{scratch}/metrics.jsonl", encoding="utf-8") as file:
        return [record["metrics"] for record in map(json.loads, file) if record["kind"] == "evaluation"]


def reference(args, seed, _):
    command = [sys.executable, ROOT / "scripts/peers/bert_hf.py", "--model", args.model, "--train",
               f"{args.data}/train.tsv", "--dev", f"{args.data}/dev.tsv", "--seed", str(seed), "--epochs",
               str(args.epochs), "--precision", args.precision]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["evaluations"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer")
    parser.add_argument("--data", default="data/mrpc")
    parser.add_argument("--model", default="assets/minilm-l6")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of trainer; the global batch stays 16")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    scores = {"trainer": [], "transformers": []}
    for seed in args.seeds:
        for name, run in (("trainer", ours), ("transformers", reference)):
            with tempfile.TemporaryDirectory() as scratch:
                last = run(args, seed, scratch)[-1]
            scores[name].append(last)
            print(f"{name:12}  seed {seed}: accuracy {last['accuracy']:.4f}  f1 {last['f1']:.4f}  loss {last['loss']:.4f}",
                  flush=True)
    print(f"word overlap: {word_overlap.baseline(*(word_overlap.read_pairs(f'{args.data}/{name}.tsv') for name in ('train', 'dev')))}")
    within = True
    for metric in ("accuracy", "f1"):
        a, b = ([score[metric] for score in scores[name]] for name in ("trainer", "transformers"))
        half = (max(a) - min(a)) / 2
        inside = min(b) - half <= statistics.mean(a) <= max(b) + half
        within &= inside
        print(f"{metric}: trainer {statistics.mean(a):.4f} [{min(a):.4f}, {max(a):.4f}], transformers "
              f"{statistics.mean(b):.4f} [{min(b):.4f}, {max(b):.4f}]: {'within' if inside else 'OUTSIDE'} the spread")
    print(json.dumps({"precision": args.precision, "data": args.data, "seeds": args.seeds, "scores": scores}))
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
