#!/usr/bin/env python3
"""Writes tests/data/click_metrics.json: metrics of click models by scikit-learn that the unit tests compare with."""

import json
import pathlib

import numpy as np
from sklearn import metrics

rng = np.random.default_rng(11)


def auc(labels, scores):
    return metrics.roc_auc_score(labels, scores) if len(set(labels)) == 2 else None


def grouped_auc(labels, scores, groups):
    kept = [(auc(labels[of], scores[of]), of.sum()) for of in (groups == g for g in np.unique(groups))]
    kept = [k for k in kept if k[0] is not None]
    mean = np.average([k[0] for k in kept], weights=[k[1] for k in kept]) if kept else None
    return {"grouped_auc": mean, "groups": len(kept),
            "one_class": len(np.unique(groups)) - len(kept)}


def case(name, logits, labels, num_groups):
    logits = np.asarray(logits, np.float32).astype(float)
    labels = np.asarray(labels, int)
    groups = rng.integers(0, num_groups, len(labels)) * 1_000_003 - 7
    p = 1 / (1 + np.exp(-logits))
    log_loss = metrics.log_loss(labels, p, labels=[0, 1])
    mean = labels.mean()
    two = 0 < mean < 1
    # The entropy of the labels: what always predicting their mean costs.
    entropy = metrics.log_loss(labels, np.full(len(labels), mean)) if two else None
    expected = {"auc": auc(labels, logits), "log_loss": log_loss,
                "normalized_entropy": log_loss / entropy if two else None,
                "calibration": p.sum() / labels.sum() if mean > 0 else None}
    return {"name": name, "logits": logits.tolist(), "labels": labels.tolist(), "groups": groups.tolist(),
            "expected": expected | grouped_auc(labels, logits, groups)}


def normal(n):
    return np.round(rng.standard_normal(n) * 256) / 256  # short in the file, exact in fp32


def clicks(n, rate):
    labels = (rng.random(n) < rate).astype(int)
    labels[:2] = [0, 1]
    return labels


labels = clicks(150, 0.3)
cases = [
    case("no relation", normal(120), clicks(120, 0.5), 5),
    case("scores that know the label", normal(150) + labels, labels, 9),
    case("rare clicks", normal(200) - 4, clicks(200, 0.03), 4),
    case("many ties", rng.integers(-2, 3, 180) / 4, clicks(180, 0.4), 6),
    case("two scores, mostly ties", rng.integers(0, 2, 90), clicks(90, 0.2), 3),
    case("zeros of both signs", np.where(rng.random(40) < 0.5, -0.0, 0.0), clicks(40, 0.5), 3),
    case("all scores are equal", np.full(60, -1.25), clicks(60, 0.25), 7),
    case("perfect", np.arange(30) - 15.5, np.arange(30) > 20, 2),
    case("reversed", np.arange(30) - 15.5, np.arange(30) < 20, 2),
    case("large scores", normal(100) * 8, clicks(100, 0.5), 4),
    case("two rows", [0.5, 0.25], [0, 1], 1),
    case("a group for nearly every row", normal(50), clicks(50, 0.5), 40),
    case("no clicks", normal(25), np.zeros(25), 3),
    case("clicks alone", normal(25), np.ones(25), 3),
    case("one row", [1.0], [1], 1),
]
path = pathlib.Path(__file__).resolve().parents[2] / "data" / "click_metrics.json"
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(f"{path}: {len(cases)} cases")
