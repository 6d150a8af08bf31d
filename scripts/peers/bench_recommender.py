#!/usr/bin/env python3
"""Training speed of a DLRM job on the CPU: trainer, torchrec and plain PyTorch with sparse gradients (dlrm_torch.py), in turn,
on the same cores; or with --scaling two processes of trainer, one, and one of two threads.

All train on the same batches in the same order, with the same layers, row-wise Adagrad for the tables (plain PyTorch also with
SGD) and Adagrad for the rest. Measured, per run: samples/s, the median over windows of steps after the first two; the largest
process's peak memory.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import clicks
import compare

SIZES = {"small": {"rows": 100_000, "dim": 16, "steps": 300, "window": 20},
         "large": {"rows": 1_000_000, "dim": 64, "steps": 160, "window": 10}}
BATCH, BATCHES, ZIPF = 2048, 128, 1.05
BOTTOM, TOP = [512, 256], [512, 256]  # of Criteo Kaggle; below the last layers
OURS = "trainer"
TORCHREC = "1.6.0"
REQUIREMENTS = compare.ROOT / "scripts/peers/requirements-torchrec.txt"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="26 tables of 100,000 rows of 16, or of 1,000,000 of 64")
    parser.add_argument("--scaling", action="store_true", help="trainer alone: two processes against one, and one of two threads")
    parser.add_argument("--threads", type=int, default=2, help="of every program; not with --scaling")
    parser.add_argument("--steps", type=int)
    compare.add_arguments(parser)
    return parser.parse_args()


def install_torchrec():
    """The folder to put in PYTHONPATH; filled when it isn't yet."""
    wanted = hashlib.sha256(f"{TORCHREC} {REQUIREMENTS.read_text()}".encode()).hexdigest()[:12]
    folder = compare.ROOT / f".venv/peers/torchrec-{wanted}"
    if folder.exists():
        return folder
    print(f"installing torchrec {TORCHREC} to {folder}", file=sys.stderr)
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{scratch}/new"]
        subprocess.run([*pip, "--requirement", REQUIREMENTS], check=True)
        subprocess.run([*pip, "--python-version", "3.13", "--only-binary=:all:", f"torchrec=={TORCHREC}"], check=True)
        os.rename(f"{scratch}/new", folder)
    return folder


def trainer_command(args, size, data, scratch, processes, threads):
    job = {"job": {"name": "bench"},
           "model": {"type": "recommender", "recommender": {
               "architecture": "dlrm", "embedding_dim": size["dim"], "rows": size["rows"], "bottom_mlp": BOTTOM, "top_mlp": TOP,
               "embedding_optimizer": {"type": "rowwise_adagrad", "eps": 1e-8}}},
           "data": {"train": {"path": f"{data}/clicks.csv"}, "shuffle": False,
                    "features": {"label": "label", "dense": ["I*"], "sparse": ["C*"], "ids": "identity"}},
           "train": {"steps": size["steps"], "batch_size": BATCH // processes, "clip_grad_norm": 0},
           "optimizer": {"type": "adagrad", "lr": 0.01, "eps": 1e-8, "weight_decay": 0},
           "schedule": {"type": "constant"},
           "logging": {"every_steps": size["window"]},
           "hardware": {"device": "cpu"}}
    path = pathlib.Path(scratch) / "job.yaml"
    path.write_text(json.dumps(job), encoding="utf-8")  # JSON is YAML
    settings = {"launch.nproc_per_node": processes, "hardware.threads_per_worker": threads}
    return compare.trainer_command(args, path, settings, scratch)


def peer_command(args, size, data, scratch, form, optimizer):
    records = f"{scratch}/records.jsonl"
    return [sys.executable, compare.ROOT / "scripts/peers/dlrm_torch.py", "--form", form, "--data", f"{data}/arrays.npz",
            "--rows", size["rows"], "--dim", size["dim"], "--bottom", *BOTTOM, "--top", *TOP, "--embedding-optimizer",
            optimizer, "--batch-size", BATCH, "--steps", size["steps"], "--threads", args.threads, "--every",
            size["window"], "--records", records], records


def measure(size, command_and_records, scratch, env=None):
    command, records = command_and_records
    whole = compare.run(list(map(str, command)), f"{scratch}/log", env)
    steps = compare.read_records(records, "step")
    samples = size["window"] * BATCH
    rates = [samples / (b["unix_s"] - a["unix_s"]) for a, b in zip(steps[1:], steps[2:])]
    return {"samples/s": statistics.median(rates), "peak memory, GiB": whole["peak_memory_bytes"] / 2**30,
            "loss of the last window": steps[-1]["loss"]}


def main():
    args = arguments()
    size = dict(SIZES[args.size])
    size["steps"] = args.steps or size["steps"]
    if size["steps"] < 4 * size["window"]:
        sys.exit(f"bench: --steps {size['steps']}: expected at least four windows of {size['window']} steps")
    # The cores are nobody else's: all programs' threads wait for each other by spinning, as in bench_gpt.py.
    os.environ.setdefault("GOMP_SPINCOUNT", "300000")
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    with tempfile.TemporaryDirectory() as data:
        clicks.make(data, BATCH * BATCHES, size["rows"], ZIPF)

        def trainer(processes, threads):
            return lambda scratch: measure(size, trainer_command(args, size, data, scratch, processes, threads), scratch,
                                           {"OMP_NUM_THREADS": str(threads)})

        def peer(form, optimizer, env=None):
            return lambda scratch: measure(size, peer_command(args, size, data, scratch, form, optimizer), scratch, env)

        if args.scaling:
            ours = "2 processes"
            programs = {ours: trainer(2, 1), "1 process": trainer(1, 1), "1 of 2 threads": trainer(1, 2)}
        else:
            ours, programs = OURS, {
                OURS: trainer(1, args.threads),
                "torchrec": peer("torchrec", "rowwise_adagrad", {"PYTHONPATH": str(install_torchrec())}),
                "plain": peer("plain", "rowwise_adagrad"), "plain, SGD": peer("plain", "sgd")}
        about = {"bench": "recommender", "size": args.size, "tables": clicks.NUM_SPARSE, **size, "batch": BATCH, "zipf": ZIPF,
                 "threads": "as named" if args.scaling else args.threads, "repeats": args.repeats, **compare.machine()}
        compare.report(about, programs, ours, args)


if __name__ == "__main__":
    main()
