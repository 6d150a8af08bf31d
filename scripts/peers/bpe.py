"""MiB per second of this program's byte-level BPE and of Hugging Face tokenizers (Rust), in turn, on the same cores.

  scripts/bench tokenizer bpe [--tokenizer PATH] [--json FILE] [FILE...]

GPT-2's vocabulary; each file is a document: `encode_batch_fast` and this program's batch encode them all with as many threads
as there are cores, then all joined as one text, which Hugging Face encodes on one thread. Default documents: the chapters
of three Bible translations (prose), and PyTorch's Python files (code). Needs a configured build/release.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "true"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import bible


def prose():
    for version in ("kjv", "asv", "ylt"):
        for _, chapter in itertools.groupby(sorted(bible.verses(version).items()), key=lambda verse: verse[0] // 1000):
            yield "\n".join(text for _, text in chapter)


def code(limit=6 << 20):
    import torch
    for path in sorted(pathlib.Path(torch.__file__).parent.rglob("*.py")):
        text = path.read_text(errors="replace")
        limit -= len(text)
        if limit < 0:
            return
        yield text


def measure(name, documents, tokenizer_path, hugging_face, cores, rounds):
    num_bytes = sum(len(d.encode()) for d in documents)
    whole = ["\n".join(documents)]

    def ours(texts, threads):
        lines = "".join(text.encode().hex() + "\n" for text in texts)
        out = subprocess.run([ROOT / "build/release/tests/tokenizer_bench", "bpe", tokenizer_path, str(threads), "2"],
                             input=lines, capture_output=True, text=True, check=True).stdout
        return min(float(x) for x in out.split())

    def theirs(texts):
        def run():
            start = time.perf_counter()
            hugging_face.encode_batch_fast(texts, add_special_tokens=False)
            return time.perf_counter() - start
        return min(run() for _ in range(2))

    programs = {
        "hf encode_batch_fast": lambda: theirs(documents),
        "trainer": lambda: ours(documents, cores),
        "trainer, 1 thread": lambda: ours(documents, 1),
        "hf, one text": lambda: theirs(whole),
        "trainer, one text": lambda: ours(whole, cores),
    }
    rates = {program: [] for program in programs}
    for _ in range(rounds):
        for program, run in programs.items():
            rates[program].append(num_bytes / (1 << 20) / run())
    median = {program: statistics.median(r) for program, r in rates.items()}
    over = {"hf encode_batch_fast": median["trainer"] / median["hf encode_batch_fast"],
            "hf, one text": median["trainer, one text"] / median["hf, one text"]}
    print(f"{name}: {len(documents)} documents, {num_bytes / (1 << 20):.1f} MiB, {cores} cores, {rounds} rounds (each the best of 2)")
    for program, r in rates.items():
        ratio = f"   trainer is {over[program]:.1f}x" if program in over else ""
        print(f"  {program:22}{median[program]:8.1f} MiB/s   ({min(r):.1f} to {max(r):.1f}){ratio}")
    return {"documents": len(documents), "bytes": num_bytes, "trainer_over": over,
            "mib_per_second": {p: {"median": median[p], "min": min(r), "max": max(r)} for p, r in rates.items()}}


def main(argv):
    parser = argparse.ArgumentParser(prog="scripts/bench tokenizer bpe", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--tokenizer", default=str(ROOT / "assets/gpt2-tokenizer"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the result to this file")
    args = parser.parse_intermixed_args(argv)

    subprocess.run(["cmake", "--build", ROOT / "build/release", "--target", "tokenizer_bench"], check=True, stdout=subprocess.DEVNULL)
    import tokenizers
    from transformers import AutoTokenizer
    hugging_face = AutoTokenizer.from_pretrained(args.tokenizer, **(
        {} if pathlib.Path(args.tokenizer, "tokenizer.json").exists() else {"tokenizer_type": "gpt2"})).backend_tokenizer
    cores = len(os.sched_getaffinity(0))
    texts = {"files": [pathlib.Path(f).read_text(errors="replace") for f in args.files]} if args.files else {
        "prose": list(prose()), "code": list(code())}
    print(f"tokenizer bpe: Hugging Face tokenizers {tokenizers.__version__}")
    result = {"bench": "tokenizer bpe", "date": datetime.date.today().isoformat(), "machine": platform.machine(), "cores": cores,
              "rounds": args.rounds, "tokenizers": tokenizers.__version__}
    for name, documents in texts.items():
        result[name] = measure(name, documents, args.tokenizer, hugging_face, cores, args.rounds)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
