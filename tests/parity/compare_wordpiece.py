"""Compares this program's WordPiece with Hugging Face's BertTokenizerFast, token by token (ids, types, offsets).

  compare_wordpiece.py TOKENIZER_BENCH code-points                       every Unicode code point among letters and marks
  compare_wordpiece.py TOKENIZER_BENCH mrpc --tokenizer DIRECTORY FILE.tsv...   every sentence and every pair of MRPC files

Exit code 1 and the first differences when there are any. Not a test: it takes minutes and needs a built tokenizer_bench.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from transformers import BertTokenizerFast


SETTINGS = [{"do_lower_case": True}, {"do_lower_case": False}, {"do_lower_case": False, "strip_accents": True},
            {"do_lower_case": True, "strip_accents": False}]


def write_all_code_points(directory, settings):
    """A vocabulary of every code point, so that each character that reaches WordPiece shows as its own id."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not chr(c).isspace()]
    tokens = special + chars + ["##" + c for c in chars]
    pathlib.Path(directory, "vocab.txt").write_text("".join(t + "\n" for t in tokens), encoding="utf-8", newline="\n")
    pathlib.Path(directory, "tokenizer_config.json").write_text(
        json.dumps(settings | {"tokenizer_class": "BertTokenizer"}))


def code_points():
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            yield "e" + chr(c) + "e", None
            # Where the character goes in the canonical order of marks.
            yield "A" + chr(c) + "\u302e" + chr(c) + "\u1b44" + chr(c) + "\u0345\u0301\u05b0A", None


def mrpc(files):
    for file in files:
        with open(file, encoding="utf-8-sig", newline="\n") as lines:
            next(lines)
            for line in lines:
                first, second = line.rstrip("\r\n").split("\t")[3:5]
                yield first, None
                yield second, None
                yield first, second


def compare(bench, directory, texts):
    """Number of texts that differ."""
    lines = [t.encode().hex() + ("" if p is None else "\t" + p.encode().hex()) for t, p in texts]
    ours = subprocess.run([bench, "encode", directory, "128"], input="\n".join(lines) + "\n",
                          capture_output=True, text=True, check=True).stdout.splitlines()
    tokenizer = BertTokenizerFast.from_pretrained(directory)
    tokenizer.backend_tokenizer.no_padding()
    different = 0
    for (text, pair), line in zip(texts, ours, strict=True):
        e = tokenizer(text, pair, truncation="longest_first", max_length=128, return_offsets_mapping=True)
        theirs = [e["input_ids"], e["token_type_ids"], [list(o) for o in e["offset_mapping"]]]
        if json.loads(line) != theirs:
            different += 1
            if different <= 20:
                print(ascii(text), ascii(pair), "\n  got     ", line, "\n  expected", theirs)
    print(f"{len(texts)} texts, {different} different")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("texts", choices=["code-points", "mrpc"])
    parser.add_argument("--tokenizer")
    parser.add_argument("files", nargs="*")
    args = parser.parse_intermixed_args()

    if args.texts == "mrpc":
        return 1 if compare(args.bench, args.tokenizer, list(mrpc(args.files))) else 0
    different = 0
    for settings in SETTINGS:
        with tempfile.TemporaryDirectory() as directory:
            write_all_code_points(directory, settings)
            print(settings, end=": ", flush=True)
            different += compare(args.bench, directory, list(code_points()))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
