#!/usr/bin/env python3
"""How far shared words alone tell paraphrases from other pairs: the baseline to beat.

A pair is called a paraphrase when the Jaccard index of its two sets of words is at least a threshold, the best one on
the training file. No model is worth its training that scores no more on the development file.

  scripts/word_overlap.py data/mrpc/train.tsv data/mrpc/dev.tsv
"""

import argparse
import csv
import json
import re


def read_pairs(path):
    """(label, text, text) of every row of a file in MRPC's format; it has no quoting, and may begin with a BOM."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        return [(int(row["Quality"]), row["#1 String"], row["#2 String"])
                for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def jaccard(first, second):
    a, b = (set(re.findall(r"\w+", text.lower())) for text in (first, second))
    return len(a & b) / len(a | b) if a | b else 1.0


def counts(overlaps, labels, threshold):
    """True positives, false positives, false negatives, true negatives."""
    pairs = [(label, overlap >= threshold) for overlap, label in zip(overlaps, labels)]
    return tuple(pairs.count(pair) for pair in ((1, True), (0, True), (1, False), (0, False)))


def accuracy(tp, fp, fn, tn):
    return (tp + tn) / (tp + fp + fn + tn)


def f1(tp, fp, fn, tn):
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


def best_threshold(overlaps, labels, metric):
    return max(sorted(set(overlaps)), key=lambda threshold: metric(*counts(overlaps, labels, threshold)))


def baseline(train, dev):
    """{metric that the threshold was fitted for: threshold, and accuracy and f1 on dev}; both are lists of read_pairs."""
    result = {}
    (overlaps, labels), (dev_overlaps, dev_labels) = (
        ([jaccard(a, b) for _, a, b in pairs], [label for label, _, _ in pairs]) for pairs in (train, dev))
    for metric in (accuracy, f1):
        threshold = best_threshold(overlaps, labels, metric)
        found = counts(dev_overlaps, dev_labels, threshold)
        result[metric.__name__] = {"threshold": threshold, "accuracy": accuracy(*found), "f1": f1(*found)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("dev")
    args = parser.parse_args()
    print(json.dumps(baseline(read_pairs(args.train), read_pairs(args.dev)), indent=2))


if __name__ == "__main__":
    main()
