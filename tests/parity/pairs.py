#!/usr/bin/env python3
"""Writes tests/data/pairs.tsv: 64 short sentence pairs in MRPC's format, from public-domain Bible translations.

A pair of label 1 is one verse in two translations (King James 1769, Young's Literal 1898); of label 0, two verses that
share words.
"""

import pathlib
import random
import re

import pythonbible

NUM_PAIRS = 64
rng = random.Random(1)


def verses(version):
    """{verse id: text} of Proverbs, whose verses are short and stand alone."""
    ids = [v for v in pythonbible.verses.VERSE_IDS if v // 1_000_000 == pythonbible.Book.PROVERBS.value]
    clean = lambda text: re.sub(r"\s+", " ", re.sub(r"[\[\]]", "", re.sub(r"^\d+\.\s*", "", text))).strip()
    return {v: clean(pythonbible.get_verse_text(v, version=version)) for v in ids}


def words(text):
    return set(re.findall(r"[a-z]{4,}", text.lower()))


first = verses(pythonbible.Version.KING_JAMES)
second = verses(pythonbible.Version.YOUNGS)
short = [v for v in first if 6 <= len(first[v].split()) <= 16 and 6 <= len(second.get(v, "").split()) <= 16]
rng.shuffle(short)
rows = []
for i, verse in enumerate(short[:NUM_PAIRS]):
    label = int(i % 2 == 0)
    other = verse
    if not label:
        overlap = lambda v: len(words(first[verse]) & words(second[v]))
        other = max((v for v in short if v != verse), key=lambda v: (overlap(v), v))
    rows.append((label, verse, other, first[verse], second[other]))
rng.shuffle(rows)
path = pathlib.Path(__file__).parent.parent / "data" / "pairs.tsv"
with path.open("w", encoding="utf-8", newline="\n") as file:
    file.write("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n")
    for row in rows:
        file.write("\t".join(map(str, row)) + "\n")
print(f"{path}: {len(rows)} pairs")
