#!/usr/bin/env python3
"""The Python peers of a DLRM job on the CPU, in one process.

--form torchrec: torchrec's DLRM; its tables are one table-batched operator of FBGEMM with the optimizer fused into backward.
--form plain: as in facebookresearch's dlrm: an nn.EmbeddingBag with sparse gradients for each feature, nn.Linear, row-wise
Adagrad or SGD on the sparse gradients.

Batches are all made before the first step. --records gets a line a logged step, as metrics.jsonl of trainer has them.
"""

import argparse
import json
import logging
import time

import numpy as np
import torch
from torch import nn

LR, EPS = 0.01, 1e-8


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=["torchrec", "plain"], required=True)
    parser.add_argument("--data", required=True, help="arrays.npz of clicks.py")
    parser.add_argument("--rows", type=int, required=True, help="of each table")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--bottom", type=int, nargs="+", default=[512, 256], help="layers below the last, which has dim channels")
    parser.add_argument("--top", type=int, nargs="+", default=[512, 256], help="layers below the last, which has 1")
    parser.add_argument("--embedding-optimizer", choices=["rowwise_adagrad", "sgd"], default="rowwise_adagrad")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=20, help="steps between records")
    parser.add_argument("--records", required=True, help="file of JSON lines")
    return parser.parse_args(argv)


def torchrec_dlrm(args, num_dense, num_features):
    """A model of (dense, KeyedJaggedTensor) whose tables learn in backward, and the parameters that don't."""
    logging.disable(logging.WARNING)  # FBGEMM's table of versions lacks its own
    from torchrec.models.dlrm import DLRM
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    from torchrec.optim import RowWiseAdagrad
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    optimizers = {"rowwise_adagrad": (RowWiseAdagrad, {"lr": LR, "eps": EPS}), "sgd": (torch.optim.SGD, {"lr": LR})}
    keys = [f"C{f + 1}" for f in range(num_features)]
    tables = [EmbeddingBagConfig(num_embeddings=args.rows, embedding_dim=args.dim, name=key, feature_names=[key])
              for key in keys]
    model = DLRM(FusedEmbeddingBagCollection(tables, *optimizers[args.embedding_optimizer]), num_dense,
                 args.bottom + [args.dim], args.top + [1])

    def sparse(ids):
        return KeyedJaggedTensor.from_lengths_sync(keys, ids.flatten(), torch.ones(ids.numel(), dtype=torch.int32))

    return model, [*model.dense_arch.parameters(), *model.over_arch.parameters()], sparse, None


class Dlrm(nn.Module):
    def __init__(self, args, num_dense, num_features):
        super().__init__()
        self.tables = nn.ModuleList()
        for _ in range(num_features):
            table = nn.EmbeddingBag(args.rows, args.dim, mode="sum", sparse=True, _weight=torch.empty(args.rows, args.dim))
            nn.init.uniform_(table.weight, -args.rows**-0.5, args.rows**-0.5)
            self.tables.append(table)
        self.bottom = self.mlp([num_dense, *args.bottom, args.dim], last=nn.ReLU())
        pairs = torch.tril_indices(num_features + 1, num_features + 1, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.top = self.mlp([args.dim + pairs.shape[1], *args.top, 1], last=nn.Identity())

    @staticmethod
    def mlp(sizes, last):
        layers = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1], last)

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        vectors = torch.stack([x] + [table(ids, offsets) for table, (ids, offsets) in zip(self.tables, sparse)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))


class RowwiseAdagrad(torch.optim.Optimizer):
    """Of sparse gradients: a row's step is divided by the root of the sum over steps of its gradient's mean square."""

    def __init__(self, params):
        super().__init__(params, {})
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["sum"] = torch.zeros(len(parameter))

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            gradient, sums = parameter.grad.coalesce(), self.state[parameter]["sum"]
            rows, values = gradient.indices()[0], gradient.values()
            sums.index_add_(0, rows, values.square().mean(1))
            scale = sums[rows].sqrt_().add_(EPS)
            parameter.index_add_(0, rows, values / scale[:, None], alpha=-LR)


def plain_dlrm(args, num_dense, num_features):
    model = Dlrm(args, num_dense, num_features)
    optimizer = RowwiseAdagrad(model.tables.parameters()) if args.embedding_optimizer == "rowwise_adagrad" else \
        torch.optim.SGD(model.tables.parameters(), lr=LR)
    offsets = torch.arange(args.batch_size)
    return model, [*model.bottom.parameters(), *model.top.parameters()], lambda ids: [(row, offsets) for row in ids], optimizer


def train(args, record):
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    arrays = np.load(args.data)
    # [batches, batch, columns]; ids [batches, features, batch]
    labels, dense, ids = (torch.from_numpy(arrays[name]) for name in ("label", "dense", "ids"))
    labels, dense = labels.reshape(-1, args.batch_size, 1), dense.reshape(-1, args.batch_size, dense.shape[1])
    ids = ids.reshape(-1, args.batch_size, ids.shape[1]).transpose(1, 2).contiguous()
    make = {"torchrec": torchrec_dlrm, "plain": plain_dlrm}[args.form]
    model, parameters, sparse, table_optimizer = make(args, dense.shape[-1], ids.shape[1])
    batches = [(x, sparse(rows), y) for x, rows, y in zip(dense, ids, labels)]
    optimizer = torch.optim.Adagrad(parameters, lr=LR, eps=EPS, fused=True)
    logged, since = torch.zeros(()), 0
    for step in range(1, args.steps + 1):
        x, rows, y = batches[(step - 1) % len(batches)]
        loss = nn.functional.binary_cross_entropy_with_logits(model(x, rows), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if table_optimizer is not None:
            table_optimizer.step()
            table_optimizer.zero_grad()
        logged += loss.detach()
        if step % args.every == 0 or step == args.steps:
            record({"kind": "step", "unix_s": time.time(), "step": step, "loss": logged.item() / (step - since)})
            logged.zero_()
            since = step


def main():
    args = arguments()
    with open(args.records, "w", buffering=1) as lines:
        train(args, lambda record: lines.write(json.dumps(record) + "\n"))


if __name__ == "__main__":
    main()
