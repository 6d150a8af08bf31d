"""The memory that `trainer check` foresees of a CPU job is within 10 % of what its worker then has at its peak.

    memory_test.py TRAINER
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TRAINER = sys.argv[1]
GPT2 = {"layers": 4, "heads": 4, "hidden_size": 256}
LLAMA = GPT2 | {"kv_heads": 2, "norm": "rms", "positions": "rope", "activation": "swiglu", "bias": False,
                "tie_embeddings": False}
JOBS = {
    "GPT-2's form": (GPT2, {}),
    "a vocabulary of 50,257 in bf16": (GPT2 | {"vocab_size": 50257}, {"precision": "bf16", "batch_size": 4}),
    "Llama's form, blocks computed again, a mean of the weights": (LLAMA, {"recompute": "block", "ema_decay": 0.9}),
    "MLPs computed again, accumulation": (GPT2, {"recompute": "mlp", "gradient_accumulation": 2}),
    "an evaluation larger than a step": (GPT2, {"batch_size": 1}, {"batch_size": 64, "every": 2}),
}


def peaks_mib(pid):
    """Of a process and all below it: {pid: most resident memory}."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # gone
        return {}
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    found = {pid: int(peak[1]) / 1024 if peak else 0}
    for child in children:
        found |= peaks_mib(child)
    return found


def run(what, folder, gpt, train, evaluation=None):
    job = {"job": {"name": "memory", "output_dir": str(folder / "out")},
           "model": {"type": "gpt", "gpt": gpt},
           "data": {"train": {"path": str(folder / "text.txt")}, "tokenizer": {"type": "byte"}, "max_length": 256},
           "train": {"steps": 4, "batch_size": 16} | train, "checkpoint": {"save_final": False},
           "launch": {"nproc_per_node": 1}}
    if evaluation:
        job |= {"evaluation": evaluation}
        job["data"]["validation"] = job["data"]["train"]
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    checked = subprocess.run([TRAINER, "check", path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    foreseen = re.search(r"memory +([\d.]+) MiB a worker", checked.stdout + checked.stderr)
    with (folder / "log").open("w") as log, subprocess.Popen([TRAINER, "run", path], stdout=log, stderr=log) as process:
        peaks = {}
        while process.poll() is None:
            for pid, peak in peaks_mib(process.pid).items():
                peaks[pid] = max(peak, peaks.get(pid, 0))
            time.sleep(0.02)
    assert process.returncode == 0, (folder / "log").read_text()
    ratio = float(foreseen[1]) / max(peaks.values())
    print(f"{what}: foreseen {foreseen[1]} MiB, peak {max(peaks.values()):.0f} MiB, ratio {ratio:.3f}", flush=True)
    assert 0.9 <= ratio <= 1.1, what


def main():
    for what, job in JOBS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 5000)
            run(what, folder, *job)


main()
