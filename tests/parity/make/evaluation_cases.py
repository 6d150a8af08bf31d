#!/usr/bin/env python3
"""Writes tests/data/evaluation_cases.json: metrics by scikit-learn and scipy that the unit tests compare with."""

import json
import pathlib
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

warnings.filterwarnings("ignore")  # undefined metrics are part of the cases
rng = np.random.default_rng(7)


def single(name, logits, labels):
    predicted = logits.argmax(1)
    # scikit-learn's own choice for a two-class problem; macro over the labels that occur otherwise.
    average = "binary" if logits.shape[1] == 2 else "macro"
    return case(name, "single_label", logits, labels, {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "f1": metrics.f1_score(labels, predicted, average=average),
        "mcc": metrics.matthews_corrcoef(labels, predicted)})


def multi(name, logits, labels):
    predicted = (logits > 0).astype(int)
    return case(name, "multi_label", logits, labels, {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "f1": metrics.f1_score(labels, predicted, average="macro"),
        "mcc": metrics.matthews_corrcoef(labels.ravel(), predicted.ravel())})


def regression(name, logits, labels):
    columns = range(logits.shape[1])
    return case(name, "regression", logits, labels, {
        "mse": metrics.mean_squared_error(labels, logits),
        "pearson": np.mean([stats.pearsonr(logits[:, c], labels[:, c])[0] for c in columns]),
        "spearman": np.mean([stats.spearmanr(logits[:, c], labels[:, c])[0] for c in columns])})


def case(name, problem, logits, labels, expected):
    return {"name": name, "problem": problem, "logits": logits.tolist(), "labels": labels.tolist(),
            "expected": {k: None if np.isnan(v) else float(v) for k, v in expected.items()}}


def one_hot(classes, num_labels):
    return np.eye(num_labels)[classes]


def normal(*shape):
    return np.round(rng.standard_normal(shape) * 256) / 256  # short in the file, exact in fp32


cases = [
    single("two labels", normal(61, 2), rng.integers(0, 2, 61)),
    single("two labels, one of them rare", normal(97, 2), (rng.random(97) < 0.04).astype(int)),
    single("five labels", normal(83, 5), rng.integers(0, 5, 83)),
    single("five labels, two in neither targets nor predictions",
           one_hot(rng.integers(0, 3, 40), 5), rng.integers(0, 3, 40)),
    single("four labels, one only predicted", one_hot(rng.integers(0, 4, 40), 4), rng.integers(0, 3, 40)),
    single("every target is 0, predictions vary", normal(20, 2), np.zeros(20, int)),
    single("every target is 1, predictions vary", normal(20, 2), np.ones(20, int)),
    single("everything is 0", one_hot(np.zeros(9, int), 2), np.zeros(9, int)),
    single("everything is 1", one_hot(np.ones(9, int), 2), np.ones(9, int)),
    single("constant prediction of 1", one_hot(np.ones(30, int), 2), rng.integers(0, 2, 30)),
    single("constant prediction of 0", one_hot(np.zeros(30, int), 2), rng.integers(0, 2, 30)),
    single("constant prediction, three labels", one_hot(np.full(30, 2), 3), rng.integers(0, 3, 30)),
    single("one sample, right", one_hot(np.array([1]), 2), np.array([1])),
    single("one sample, wrong", one_hot(np.array([0]), 2), np.array([1])),
    single("all wrong", one_hot(np.array([0, 1, 1]), 2), np.array([1, 0, 0])),
    multi("three labels at once", normal(47, 3), rng.integers(0, 2, (47, 3))),
    multi("a label that never occurs and is never predicted",
          np.concatenate([normal(20, 2), -np.ones((20, 1))], 1),
          np.concatenate([rng.integers(0, 2, (20, 2)), np.zeros((20, 1), int)], 1)),
    multi("nothing predicted", -np.ones((12, 3)), rng.integers(0, 2, (12, 3))),
    multi("a logit of 0 is no decision for the label", np.zeros((4, 2)), np.array([[0, 0], [1, 0], [0, 1], [0, 0]])),
    regression("one output", normal(50, 1), normal(50, 1)),
    regression("a strong correlation", *(lambda y: (y + normal(200, 1) / 16, y))(normal(200, 1))),
    regression("far from 0", 30000 + normal(64, 1), 30000 + normal(64, 1)),
    regression("ties", rng.integers(0, 5, (60, 1)).astype(float), rng.integers(0, 5, (60, 1)).astype(float)),
    regression("two outputs", normal(33, 2), normal(33, 2)),
    regression("constant predictions", np.full((10, 1), np.float32(0.1)).astype(float), normal(10, 1)),
    regression("constant targets", normal(10, 1), np.full((10, 1), np.float32(0.1)).astype(float)),
    regression("two samples", np.array([[0.0], [1.0]]), np.array([[3.0], [2.0]])),
    regression("perfect", np.arange(6.0)[:, None], np.arange(6.0)[:, None]),
]
path = pathlib.Path(__file__).resolve().parents[2] / "data" / "evaluation_cases.json"
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(f"{path}: {len(cases)} cases")
