#!/usr/bin/env python3
"""Makes a stand-in for the MRPC corpus, in its format, from three public-domain Bible translations.

    make_mrpc_standin.py OUT_DIR

Paraphrases are one verse in two translations: Young's Literal (1898), whose wording is its own, beside King James (1769)
or American Standard (1901). The others are different verses that share many words. Verses are in one pair only, and so
never in both files. Writes train.tsv (3668 pairs), dev.tsv (408) and SOURCE, the same bytes each time; data that it did
not make (SOURCE holds the checksums of what it made) are left alone.
"""

import hashlib
import os
import pathlib
import random
import sys

import bible
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from word_overlap import baseline, jaccard

SIZES = {"train": (2474, 1194), "dev": (279, 129)}  # (paraphrases, others), as MRPC has them
MARK = "A stand-in for MRPC made from Bible translations by scripts/make_mrpc_standin.py; not the real corpus."
OURS, OTHERS = "ylt", ("kjv", "asv")
SEED = 20250101
WORDS = range(8, 31)  # words of a verse
POOL = 7000  # verses that the others are found among
NEIGHBOURS = 20  # by TF-IDF; of these the one with most common words is taken
SAME_STORY = 0.55  # cosine of two verses in one translation from which on they may tell the same (parallel passages)
PARAPHRASE_OVERLAP = (0.22, 0.5)


def checksum(contents):
    return hashlib.sha256(contents).hexdigest()


def make_others(ours, others, count):
    """Pairs (i, j), i != j, of verses that share many words but don't tell the same; each verse in one pair at most."""
    vectorizer = TfidfVectorizer(token_pattern=r"[a-z]+", sublinear_tf=True, max_df=0.3, dtype=np.float32)
    vectorizer.fit(ours + others)
    a, b = vectorizer.transform(ours), vectorizer.transform(others)
    candidates = []
    for begin in range(0, len(ours), 1000):
        across = (a[begin : begin + 1000] @ b.T).toarray()
        nearest = np.argpartition(-across, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        i, j = np.repeat(np.arange(len(nearest)) + begin, NEIGHBOURS), nearest.ravel()
        same = np.maximum(a[i].multiply(a[j]).sum(axis=1).A1, b[i].multiply(b[j]).sum(axis=1).A1)
        for i, j in zip(i[same < SAME_STORY].tolist(), j[same < SAME_STORY].tolist()):
            candidates.append((-jaccard(ours[i], others[j]), i, j))
    used, pairs = set(), []
    for _, i, j in sorted(candidates):
        if len(pairs) < count and i not in used and j not in used:
            used |= {i, j}
            pairs.append((i, j))
    return pairs


def make_pairs(rng):
    """Rows (label, id, id, text, text), train's and then dev's."""
    verses = {version: bible.verses(version) for version in (OURS, *OTHERS)}
    ids = [v for v in sorted(verses[OURS]) if all(len(verses[version][v].split()) in WORDS for version in verses)]
    rng.shuffle(ids)
    version = {v: rng.choice(OTHERS) for v in ids}
    num_others = sum(others for _, others in SIZES.values())
    pool = ids[:POOL]
    pairs = make_others([verses[OURS][v] for v in pool], [verses[version[v]][v] for v in pool], num_others)
    others = [(0, pool[i], pool[j]) for i, j in pairs]
    low, high = PARAPHRASE_OVERLAP
    used = {v for _, *pair in others for v in pair}
    same = [
        (1, v, v) for v in ids if v not in used and low <= jaccard(verses[OURS][v], verses[version[v]][v]) <= high
    ]
    rng.shuffle(others)
    for name, (num_same, num_others) in SIZES.items():
        rows = []
        for label, v, w in [same.pop() for _ in range(num_same)] + [others.pop() for _ in range(num_others)]:
            number = 1 + OTHERS.index(version[w])  # of the translation, in the ids
            first = (v, verses[OURS][v])
            second = (w + number * 10**8, verses[version[w]][w])
            if rng.random() < 0.5:
                first, second = second, first
            rows.append((label, first[0], second[0], first[1], second[1]))
        rng.shuffle(rows)
        yield name, rows


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    source = out / "SOURCE"
    made = source.read_text(encoding="utf-8") if source.exists() else ""
    for name in SIZES:
        path = out / f"{name}.tsv"
        if path.exists() and checksum(path.read_bytes()) not in made:
            print(f"{path}: not made here; left alone")
            return
    files = dict(make_pairs(random.Random(SEED)))
    pairs = {name: [(row[0], *row[3:]) for row in rows] for name, rows in files.items()}
    overlap = baseline(pairs["train"], pairs["dev"])["accuracy"]
    scores = f"accuracy {overlap['accuracy']:.4f}, F1 {overlap['f1']:.4f}"
    header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    contents = {}
    for name, rows in files.items():
        lines = ["\t".join(map(str, row)) for row in (header, *rows)]
        contents[f"{name}.tsv"] = ("\ufeff" + "\n".join(lines) + "\n").encode()
    sums = "\n".join(f"{checksum(text)}  {name}" for name, text in contents.items())
    out.mkdir(parents=True, exist_ok=True)
    contents["SOURCE"] = f"""{MARK} Word overlap alone scores on dev: {scores}.

Pairs of verses from Young's Literal Translation (1898) and either the King James Version (1769) or the American
Standard Version (1901); all three are in the public domain. The texts are those of the PyPI packages
pythonbible-{OURS}, pythonbible-{OTHERS[0]} and pythonbible-{OTHERS[1]} (MIT). Quality is 1 when both texts are the same verse, 0
when they are different verses that share many words.

Word overlap (1 when the Jaccard index of the two sets of words is >= {overlap["threshold"]:.3f}, the best threshold on train,
see scripts/word_overlap.py) scores on dev: {scores}. Always 1: accuracy {SIZES["dev"][0] / sum(SIZES["dev"]):.4f}.

Delete this file when you put other data here.
{sums}
""".encode()
    # SOURCE first, and each file whole: a run that is interrupted can be repeated.
    for name, text in reversed(contents.items()):
        temporary = out / f"{name}.tmp"
        temporary.write_bytes(text)
        os.replace(temporary, out / name)
    print(f"{out}: {sum(map(sum, SIZES.values()))} pairs; word overlap alone scores on dev: {scores}")


if __name__ == "__main__":
    main()
