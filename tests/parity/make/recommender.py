"""Makes tests/data/recommender: clicks.csv and, for each of a few models, a saved model with random weights and expected.json:
the job's settings, the losses of its 20 steps and the metrics after them by plain PyTorch in fp64.

Written from the papers, with dense gradients of whole tables: DLRM (arXiv:1906.00091), DCN-V2 (arXiv:2008.13535), DeepFM
(arXiv:1703.04247), Wide & Deep (arXiv:1606.07792). Tables' optimizers change the rows that a step looked up, as FBGEMM's.
"""

import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.metrics import log_loss, roc_auc_score
from torch.nn import functional as F

DATA = pathlib.Path(__file__).resolve().parents[2] / "data/recommender"
DENSE = ["I1", "I2", "I3"]
# Rows by feature. Bags of "many" and "mean" have any number of ids, those of "weighted" weights too.
ROWS = {"a": 40, "b": 25, "items": 30, "mean": 20}
TABLE_OF = {"a": "a", "b": "b", "item": "items", "many": "items", "weighted": "items", "mean": "mean"}
SAMPLES, BATCH, STEPS = 157, 16, 20  # two epochs, each of nine full batches and a shorter one
DIM, BOTTOM, TOP = 8, [16], [16, 8]

ONE_DIM = {table: DIM for table in ROWS}
# Name: architecture, features, dims, optimizer of the tables and of the rest, more keys of model.recommender.
CASES = {
    "dlrm": ("dlrm", ["a", "b", "item", "many", "mean"], ONE_DIM, "rowwise_adagrad", "adagrad", {}),
    "dlrm_weighted": ("dlrm", ["b", "weighted", "a"], ONE_DIM, "adagrad", "sgd", {}),
    "dcnv2": ("dcnv2", ["a", "b", "item", "many", "mean"], {"a": 8, "b": 4, "items": 12, "mean": 8}, "adam", "adamw",
              {"cross_layers": 2, "cross_rank": 5}),
    "dcnv2_full": ("dcnv2", ["a", "b", "item"], {"a": 8, "b": 4, "items": 8}, "sgd", "sgd", {"cross_layers": 2, "cross_rank": 0}),
    "deepfm": ("deepfm", ["a", "item", "many", "mean"], ONE_DIM, "rowwise_adagrad", "adagrad", {}),
    "wide_deep": ("wide_deep", ["a", "b", "item", "many"], {"a": 8, "b": 4, "items": 12}, "rowwise_adagrad", "adagrad", {}),
}
LR, TABLE_LR, EPS, BETAS = 0.05, 0.1, 1e-8, (0.9, 0.999)


def make_clicks(rng):
    """Rows of label, dense features and bags as [(id, weight)]."""
    rows = []
    for _ in range(SAMPLES):
        row = {"label": 0, "dense": [round(float(x), 4) for x in rng.normal(0, 1, len(DENSE))]}
        for feature, table in TABLE_OF.items():
            count = 1 if feature in ("a", "b", "item") else int(rng.integers(0, 6))  # none, too; duplicates, too
            ids = (ROWS[table] * rng.random(count) ** 2).astype(int)  # low ones more often
            row[feature] = [(int(i), round(float(rng.uniform(-1, 2)), 2) if feature == "weighted" else 1.0) for i in ids]
        signal = row["dense"][0] + sum((i % 5 - 2) / 2 for i, _ in row["a"] + row["item"])
        row["label"] = int(rng.random() < 1 / (1 + np.exp(-signal)))
        rows.append(row)
    return rows


def write_clicks(rows, path):
    lines = [",".join(["label", *DENSE, *TABLE_OF])]
    for row in rows:
        bags = ["|".join(f"{i}:{w}" if feature == "weighted" else f"{i}" for i, w in row[feature]) for feature in TABLE_OF]
        lines.append(",".join([str(row["label"]), *map(str, row["dense"]), *bags]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Model:
    """Weights by the program's names, in fp32's values and fp64's arithmetic."""

    def __init__(self, architecture, features, dims, more, generator):
        self.architecture, self.features = architecture, features
        self.first_order = architecture in ("deepfm", "wide_deep")  # a row's last column
        self.cross = more.get("cross_layers", 0)
        self.weights = {}

        def weight(name, *shape, scale):
            w = (scale * torch.randn(*shape, generator=generator)).double().requires_grad_()
            self.weights[name] = w

        self.tables = list(dict.fromkeys(TABLE_OF[f] for f in features))
        for table in self.tables:
            weight(f"embeddings.{table}.weight", ROWS[table], dims[table] + self.first_order, scale=0.3)
        pooled = sum(dims[TABLE_OF[f]] for f in features)
        if self.first_order:
            weight("wide.weight", 1, len(DENSE), scale=0.3)
            inputs = len(DENSE) + pooled
        else:
            self.bottom = [*BOTTOM, DIM]
            for i, (a, b) in enumerate(zip([len(DENSE), *self.bottom], self.bottom)):
                weight(f"bottom.{i}.weight", b, a, scale=a**-0.5)
                weight(f"bottom.{i}.bias", b, scale=0.1)
            vectors = len(features) + 1
            inputs = DIM + (vectors * (vectors - 1) // 2 if architecture == "dlrm" else pooled)
        for i in range(self.cross):
            if more["cross_rank"]:
                weight(f"cross.{i}.v", more["cross_rank"], inputs, scale=inputs**-0.5)
                weight(f"cross.{i}.w", inputs, more["cross_rank"], scale=more["cross_rank"] ** -0.5)
            else:
                weight(f"cross.{i}.weight", inputs, inputs, scale=inputs**-0.5)
            weight(f"cross.{i}.bias", inputs, scale=0.1)
        for i, (a, b) in enumerate(zip([inputs, *TOP], [*TOP, 1])):
            weight(f"top.{i}.weight", b, a, scale=a**-0.5)
            weight(f"top.{i}.bias", b, scale=0.1)

    def linear(self, name, x):
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def pool(self, rows, feature):
        """[B, dim]: nn.EmbeddingBag's sum or mean; of no ids 0."""
        bags = [row[feature] for row in rows]
        mean = TABLE_OF[feature] == "mean"
        offsets = torch.tensor(np.cumsum([0] + [len(bag) for bag in bags])[:-1])
        ids = torch.tensor([i for bag in bags for i, _ in bag], dtype=torch.long)
        weights = None if mean else torch.tensor([w for bag in bags for _, w in bag], dtype=torch.double)
        if weights is not None:  # as floats that the program reads
            weights = weights.float().double()
        return F.embedding_bag(ids, self.weights[f"embeddings.{TABLE_OF[feature]}.weight"], offsets,
                               mode="mean" if mean else "sum", per_sample_weights=weights)

    def logits(self, rows):
        dense = torch.tensor([row["dense"] for row in rows], dtype=torch.float).double()
        pooled = [self.pool(rows, feature) for feature in self.features]
        if self.first_order:
            first = F.linear(dense, self.weights["wide.weight"])[:, 0] + sum(p[:, -1] for p in pooled)
            pooled = [p[:, :-1] for p in pooled]
            x = torch.cat([dense, *pooled], 1)
            if self.architecture == "deepfm":
                first = first + sum((p * q).sum(1) for i, p in enumerate(pooled) for q in pooled[:i])
        else:
            first, y = 0, dense
            for i in range(len(self.bottom)):
                y = F.relu(self.linear(f"bottom.{i}", y))
            if self.architecture == "dlrm":  # pairs below the diagonal, row by row
                vectors = [y, *pooled]
                x = torch.cat([y, *((p * q).sum(1, keepdim=True) for i, p in enumerate(vectors) for q in vectors[:i])], 1)
            else:
                x = x0 = torch.cat([y, *pooled], 1)
                for i in range(self.cross):
                    if f"cross.{i}.v" in self.weights:
                        product = F.linear(F.linear(x, self.weights[f"cross.{i}.v"]), self.weights[f"cross.{i}.w"],
                                           self.weights[f"cross.{i}.bias"])
                    else:
                        product = self.linear(f"cross.{i}", x)
                    x = x0 * product + x
        for i in range(len(TOP)):
            x = F.relu(self.linear(f"top.{i}", x))
        return self.linear(f"top.{len(TOP)}", x)[:, 0] + first


class TableOptimizer:
    """Of whole gradients; only rows that a step looked up change."""

    def __init__(self, kind, weight):
        self.kind, self.weight = kind, weight
        self.first, self.second = torch.zeros_like(weight), torch.zeros_like(weight)
        self.sum, self.steps = torch.zeros(len(weight), 1, dtype=torch.double), 0

    @torch.no_grad()
    def step(self, touched):
        self.steps += 1
        g, w = self.weight.grad[touched], self.weight[touched]
        if self.kind == "sgd":
            w -= TABLE_LR * g
        elif self.kind == "rowwise_adagrad":
            self.sum[touched] += g.square().mean(1, keepdim=True)
            w -= TABLE_LR * g / (self.sum[touched].sqrt() + EPS)
        elif self.kind == "adagrad":
            self.second[touched] += g.square()
            w -= TABLE_LR * g / (self.second[touched].sqrt() + EPS)
        elif self.kind == "adam":
            self.first[touched] = BETAS[0] * self.first[touched] + (1 - BETAS[0]) * g
            self.second[touched] = BETAS[1] * self.second[touched] + (1 - BETAS[1]) * g.square()
            first = self.first[touched] / (1 - BETAS[0] ** self.steps)
            w -= TABLE_LR * first / ((self.second[touched] / (1 - BETAS[1] ** self.steps)).sqrt() + EPS)
        self.weight[touched] = w
        self.weight.grad = None


def train(model, rows, table_kind, dense_kind):
    """The losses, and the metrics of the rows after the last step."""
    tables = {table: TableOptimizer(table_kind, model.weights[f"embeddings.{table}.weight"]) for table in model.tables}
    others = [w for name, w in model.weights.items() if not name.startswith("embeddings.")]
    make = {"sgd": lambda: torch.optim.SGD(others, lr=LR), "adagrad": lambda: torch.optim.Adagrad(others, lr=LR, eps=EPS),
            "adamw": lambda: torch.optim.AdamW(others, lr=LR, betas=BETAS, eps=EPS, weight_decay=0)}
    optimizer, losses = make[dense_kind](), []
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        labels = torch.tensor([row["label"] for row in batch], dtype=torch.double)
        loss = F.binary_cross_entropy_with_logits(model.logits(batch), labels)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        for table, state in tables.items():
            state.step(sorted({i for row in batch for f in model.features if TABLE_OF[f] == table for i, _ in row[f]}))
    labels = [row["label"] for row in rows]
    with torch.no_grad():
        scores = torch.sigmoid(model.logits(rows)).numpy()
    return {"losses": losses, "auc": roc_auc_score(labels, scores), "log_loss": log_loss(labels, scores)}


def save(model, dims, more, directory):
    """A saved model: config.json, model.safetensors, the tables and their index."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().float().contiguous() for name, weight in model.weights.items()}
    tables = {name: tensor for name, tensor in tensors.items() if name.startswith("embeddings.")}
    save_file({name: tensor for name, tensor in tensors.items() if name not in tables}, directory / "model.safetensors")
    file = "tables-0-of-1.safetensors"
    save_file(tables, directory / file)
    part = {"file": file, "row_begin": 0, "col_begin": 0}
    index = {name: {"dtype": "F32", "shape": list(t.shape),
                    "parts": [{**part, "key": name, "rows": t.shape[0], "cols": t.shape[1]}]} for name, t in tables.items()}
    (directory / "tables.index.json").write_text(json.dumps({"tensors": index}, indent=1) + "\n")
    config = {"model_type": "recommender", "architecture": model.architecture, "dense_features": DENSE,
              "sparse_features": [{"name": f, "table": TABLE_OF[f]} for f in model.features],
              "tables": [{"name": t, "rows": ROWS[t], "dim": dims[t] + model.first_order,
                          "pooling": "mean" if t == "mean" else "sum", "dtype": "fp32"} for t in model.tables],
              "bottom_mlp": [] if model.first_order else model.bottom, "top_mlp": [*TOP, 1], **more, "dropout": 0}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    rows = make_clicks(np.random.default_rng(7))
    write_clicks(rows, DATA / "clicks.csv")
    for name, (architecture, features, dims, table_kind, dense_kind, more) in CASES.items():
        model = Model(architecture, features, dims, more, torch.Generator().manual_seed(11))
        save(model, dims, more, DATA / name)
        said = {t: {"features": [f for f in features if TABLE_OF[f] == t]} for t in model.tables}
        expected = {"features": features, "tables": said, "batch_size": BATCH, "steps": STEPS, "lr": LR, "table_lr": TABLE_LR,
                    "optimizer": dense_kind, "embedding_optimizer": table_kind, **train(model, rows, table_kind, dense_kind)}
        (DATA / name / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        print(name, *(f"{loss:.4f}" for loss in expected["losses"]), f"auc {expected['auc']:.4f}")


if __name__ == "__main__":
    main()
