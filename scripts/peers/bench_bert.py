#!/usr/bin/env python3
"""Training speed of a bert_classifier job: trainer and PyTorch + transformers (bert_hf.py) in turn, on the same cores.

Both train the same pairs in the file's order with the same hyperparameters. Measured, per run: samples/s, the median
over windows of steps after the first window; seconds from the command to the first finished step, in a run of one
step; the largest process's peak memory. Both programs report the time of day of a finished step, and all else is
measured from outside.
"""

import argparse
import statistics
import sys

import compare

OURS, PEER = "trainer", "transformers"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data/mrpc", help="directory with train.tsv in MRPC's format")
    parser.add_argument("--model", default="assets/minilm-l6", help="Hugging Face directory")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--window", type=int, default=10, help="steps")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    compare.add_arguments(parser)
    return parser.parse_args()


def trainer_command(args, scratch, steps, every):
    settings = {
        "model.pretrained": args.model, "data.train.path": f"{args.data}/train.tsv",
        "data.validation.path": '""', "data.max_length": args.max_length, "data.shuffle": "false",
        "train.epochs": "null", "train.steps": steps, "train.batch_size": args.batch_size,
        "train.precision": args.precision, "logging.every_steps": every, "hardware.device": args.device}
    return compare.trainer_command(args, "bert_mrpc.yaml", settings, scratch)


def peer_command(args, scratch, steps, every):
    records = f"{scratch}/records.jsonl"
    return [sys.executable, compare.ROOT / "scripts/peers/bert_hf.py", "--model", args.model, "--train",
            f"{args.data}/train.tsv", "--max-length", args.max_length, "--batch-size", args.batch_size, "--steps", steps,
            "--precision", args.precision, "--device", args.device, "--no-shuffle", "--every", every, "--records",
            records], records


def measure(make_command, args, scratch):
    command, records = make_command(args, scratch, 1, 1)
    first = compare.run(list(map(str, command)), f"{scratch}/log")
    to_first_step = compare.read_records(records, "step")[0]["unix_s"] - first["begin_unix_s"]
    command, records = make_command(args, scratch, args.steps, args.window)
    whole = compare.run(list(map(str, command)), f"{scratch}/log")
    steps = [r for r in compare.read_records(records, "step") if r["step"] % args.window == 0]
    rates = [args.window * args.batch_size / (b["unix_s"] - a["unix_s"]) for a, b in zip(steps, steps[1:])]
    return {"samples/s": statistics.median(rates), "command to first step, s": to_first_step,
            "peak memory, GiB": whole["peak_memory_bytes"] / 2**30, "loss of the last window": steps[-1]["loss"]}


def main():
    args = arguments()
    if args.steps < 3 * args.window:
        sys.exit(f"bench: --steps {args.steps}: expected at least three windows of {args.window} steps")
    programs = {OURS: lambda scratch: measure(trainer_command, args, scratch),
                PEER: lambda scratch: measure(peer_command, args, scratch)}
    about = {"bench": "bert", "precision": args.precision, "batch_size": args.batch_size, "steps": args.steps,
             "repeats": args.repeats, "device": args.device, "model": str(args.model), "data": args.data,
             **compare.machine()}
    compare.report(about, programs, OURS, args)


if __name__ == "__main__":
    main()
