"""Click data that several programs train on: one-hot ids drawn by Zipf's law, dense features, clicks that depend on some of
them. As CSV for trainer, as arrays for its peers."""

import pathlib

import numpy as np
import pyarrow
import pyarrow.csv

NUM_DENSE, NUM_SPARSE = 13, 26  # Criteo's


def zipf_ids(rng, rows, count, exponent):
    """The k-th most frequent id has probability ~ k^-exponent; frequent ids lie anywhere in the table."""
    cdf = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    ranks = np.searchsorted(cdf, rng.random(count) * cdf[-1], side="right")
    return rng.permutation(rows)[np.minimum(ranks, rows - 1)]


def make(directory, samples, rows, exponent, seed=1):
    """Writes clicks.csv and arrays.npz: label [samples], dense [samples, 13], ids [samples, 26]."""
    rng = np.random.default_rng(seed)
    dense = rng.exponential(1.0, (samples, NUM_DENSE)).astype(np.float32)
    ids = np.stack([zipf_ids(rng, rows, samples, exponent) for _ in range(NUM_SPARSE)], axis=1)
    effects = rng.normal(0, 0.5, (NUM_SPARSE, rows)).astype(np.float32)
    logits = dense[:, :4].sum(1) - 5 + sum(effects[f][ids[:, f]] for f in range(NUM_SPARSE))
    labels = rng.random(samples) < 1 / (1 + np.exp(-logits))

    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    columns = {"label": labels.astype(np.int8)}
    columns |= {f"I{i + 1}": dense[:, i] for i in range(NUM_DENSE)}
    columns |= {f"C{f + 1}": ids[:, f] for f in range(NUM_SPARSE)}
    pyarrow.csv.write_csv(pyarrow.table(columns), directory / "clicks.csv")
    np.savez(directory / "arrays.npz", label=labels.astype(np.float32), dense=dense, ids=ids)
