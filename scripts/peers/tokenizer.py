#!/usr/bin/env python3
"""Texts per second of this program's WordPiece and of Hugging Face tokenizers (Rust), in turn, on the same cores.

  scripts/bench tokenizer [--tokenizer DIRECTORY] [--json FILE] [MRPC.tsv...]
  scripts/bench tokenizer bpe ...      byte-level BPE (bpe.py)

Both encode the same sentences as one batch without padding, truncated to 128 tokens: `encode_batch` gives offsets,
`encode_batch_fast` and this program's do not. Needs a configured build/release.
"""

import argparse
import datetime
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


def sentences(files):
    for file in files:
        with open(file, encoding="utf-8-sig", newline="\n") as lines:
            next(lines)
            for line in lines:
                yield from line.rstrip("\r\n").split("\t")[3:5]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=[ROOT / "data/mrpc/train.tsv", ROOT / "data/mrpc/dev.tsv"])
    parser.add_argument("--tokenizer", default=str(ROOT / "assets/minilm-l6"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1, help="times that the sentences are in the batch")
    parser.add_argument("--json", help="also write the result to this file")
    args = parser.parse_intermixed_args()

    subprocess.run(["cmake", "--build", ROOT / "build/release", "--target", "tokenizer_bench"], check=True,
                   stdout=subprocess.DEVNULL)
    import tokenizers
    from transformers import BertTokenizerFast

    texts = list(sentences(args.files)) * args.repeat
    cores = len(os.sched_getaffinity(0))
    hugging_face = BertTokenizerFast.from_pretrained(args.tokenizer).backend_tokenizer
    hugging_face.no_padding()
    hugging_face.enable_truncation(128)
    lines = "".join(text.encode().hex() + "\n" for text in texts)

    def ours(threads):
        out = subprocess.run([ROOT / "build/release/tests/tokenizer_bench", "time", args.tokenizer, "128", str(threads), "3"],
                             input=lines, capture_output=True, text=True, check=True).stdout
        return min(float(x) for x in out.split())

    def theirs(encode):
        def run():
            start = time.perf_counter()
            encode(texts)
            return time.perf_counter() - start
        return min(run() for _ in range(3))

    programs = {
        "hf encode_batch": lambda: theirs(hugging_face.encode_batch),
        "hf encode_batch_fast": lambda: theirs(hugging_face.encode_batch_fast),
        "trainer": lambda: ours(cores),
        "trainer, 1 thread": lambda: ours(1),
    }
    seconds = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, run in programs.items():
            seconds[name].append(run())

    rates = {name: [len(texts) / s for s in values] for name, values in seconds.items()}
    base = statistics.median(rates["trainer"])
    result = {
        "bench": "tokenizer", "date": datetime.date.today().isoformat(), "machine": platform.machine(), "cores": cores,
        "texts": len(texts), "bytes": sum(len(t.encode()) for t in texts), "rounds": args.rounds,
        "tokenizers": tokenizers.__version__,
        "texts_per_second": {name: {"median": statistics.median(r), "min": min(r), "max": max(r)}
                             for name, r in rates.items()},
        "trainer_over": {name: base / statistics.median(r) for name, r in rates.items() if name != "trainer"},
    }
    print(f"tokenizer: {len(texts)} texts, {result['bytes'] / len(texts):.0f} bytes each, {cores} cores, "
          f"{args.rounds} rounds (each the best of 3), Hugging Face tokenizers {tokenizers.__version__}")
    for name, r in rates.items():
        print(f"  {name:22}{statistics.median(r):12,.0f} texts/s   ({min(r):,.0f} to {max(r):,.0f})   "
              f"trainer is {base / statistics.median(r):.1f}x")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["bpe"]:
        import bpe
        bpe.main(sys.argv[2:])
    else:
        main()
