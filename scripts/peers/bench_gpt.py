#!/usr/bin/env python3
"""Training speed of a gpt job: trainer and PyTorch + transformers' GPT-2 (gpt_hf.py), eager and compiled, in turn, on the
same cores.

All train on windows of the same text with the same shape and hyperparameters. Measured, per run: tokens/s, the median over
windows of steps after the first two (torch.compile compiles in the first); the largest process's peak memory.
"""

import argparse
import os
import statistics
import sys

import compare

SIZES = {"small": {"layers": 4, "heads": 4, "width": 128, "context": 64, "batch_size": 12, "steps": 600, "window": 50},
         "medium": {"layers": 6, "heads": 6, "width": 384, "context": 256, "batch_size": 12, "steps": 30, "window": 3}}
OURS, EAGER, COMPILED = "trainer", "eager", "compiled"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="small: nanoGPT's Shakespeare on a laptop")
    parser.add_argument("--text", default="data/shakespeare/input.txt")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int)
    compare.add_arguments(parser)
    return parser.parse_args()


def trainer_command(args, size, scratch):
    settings = {
        "model.gpt.layers": size["layers"], "model.gpt.heads": size["heads"],
        "model.gpt.hidden_size": size["width"], "model.gpt.bias": "true",
        "model.gpt.initializer_range": 0.02, "data.train.path": args.text,
        "data.max_length": size["context"], "train.batch_size": size["batch_size"], "train.steps": size["steps"],
        "schedule.warmup_steps": size["window"], "train.precision": args.precision,
        "logging.every_steps": size["window"], "hardware.device": "cpu"}
    return compare.trainer_command(args, "gpt_shakespeare.yaml", settings, scratch)


def peer_command(args, size, scratch, compiled):
    records = f"{scratch}/records.jsonl"
    command = [sys.executable, compare.ROOT / "scripts/peers/gpt_hf.py", "--text", args.text, "--layers", size["layers"],
               "--heads", size["heads"], "--width", size["width"], "--context", size["context"], "--batch-size",
               size["batch_size"], "--steps", size["steps"], "--warmup-steps", size["window"], "--precision",
               args.precision, "--every", size["window"], "--records", records]
    return command + (["--compile"] if compiled else []), records


def measure(size, command_and_records, scratch):
    command, records = command_and_records
    whole = compare.run(list(map(str, command)), f"{scratch}/log")
    steps = compare.read_records(records, "step")
    tokens = size["window"] * size["batch_size"] * size["context"]
    rates = [tokens / (b["unix_s"] - a["unix_s"]) for a, b in zip(steps[1:], steps[2:])]
    return {"tokens/s": statistics.median(rates), "peak memory, GiB": whole["peak_memory_bytes"] / 2**30,
            "loss of the last window": steps[-1]["loss"]}


def main():
    args = arguments()
    # The cores are nobody else's: all programs' threads wait for each other by spinning, as libgomp's do unless told
    # otherwise. trainer tells its workers otherwise, for the sake of other programs.
    os.environ.setdefault("GOMP_SPINCOUNT", "300000")
    size = dict(SIZES[args.size])
    size["steps"] = args.steps or size["steps"]
    if size["steps"] < 4 * size["window"]:
        sys.exit(f"bench: --steps {size['steps']}: expected at least four windows of {size['window']} steps")
    programs = {OURS: lambda scratch: measure(size, trainer_command(args, size, scratch), scratch),
                EAGER: lambda scratch: measure(size, peer_command(args, size, scratch, False), scratch),
                COMPILED: lambda scratch: measure(size, peer_command(args, size, scratch, True), scratch)}
    about = {"bench": "gpt", "size": args.size, **size, "precision": args.precision, "repeats": args.repeats,
             "text": args.text, **compare.machine()}
    compare.report(about, programs, OURS, args)


if __name__ == "__main__":
    main()
