"""Checks `trainer schema` with the reference validator: python schema_test.py PATH_OF_TRAINER

The schema is valid itself, accepts every file of configs/ and what the program accepts, and refuses what it refuses.
"""

import json
import pathlib
import re
import subprocess
import sys

import yaml
from jsonschema import Draft202012Validator

ROOT = pathlib.Path(__file__).parent.parent.parent

GOOD = [
    "{}",
    "train: {epochs: null}",
    "train:",
    "train: {batch_size: '${BATCH:-16}', precision: '${PRECISION}', tf32: '${TF32:-false}'}",
    "evaluation: {every: 100, best: null, metrics: []}",
    "launch: {nproc_per_node: 4, env: {NCCL_DEBUG: WARN, A: 1, B: true}}",
    "data: {train: {text: 3, label: Quality}}",
    "launch: {nnodes: 4}",
    "launch: {nnodes: '2:8', rdzv_endpoint: 'a:1,b:1', redirects: 3, tee: '0:1,12:3', local_ranks_filter: [0, 1]}",
    "launch: {nnodes: '${NODES:-2}', node_rank: null, numa_binding: core-complex, network: socket, hang_timeout_s: -1}",
    "optimizer: {lr: 5.0e-5}",
    "model: {hidden_dropout: 0}",
]
BAD = [
    "[]",
    "trian: {}",
    "train: {batch_sze: 1}",
    "data: {train: {pth: a}}",
    "train: {batch_size: 0}",
    "train: {batch_size: 1.5}",
    "train: {batch_size: '16'}",
    "train: {batch_size: null}",
    "train: {epochs: 0}",
    "train: {precision: fp8}",
    "train: {tf32: 1}",
    "optimizer: {lr: 0}",
    "optimizer: {lr: fast}",
    "optimizer: {beta1: 1}",
    "model: {hidden_dropout: 1.0}",
    "evaluation: {metrics: loss}",
    "evaluation: {metrics: [loss, loss]}",
    "evaluation: {metrics: [recall]}",
    "evaluation: {every: 0}",
    "evaluation: {every: epochs}",
    "launch: {nproc_per_node: many}",
    "launch: {env: {A: [1]}}",
    "launch: {nnodes: '2-8'}",
    "launch: {nnodes: 0}",
    "launch: {redirects: 4}",
    "launch: {redirects: '0:4'}",
    "launch: {local_ranks_filter: 0}",
    "launch: {heartbeat_s: 0}",
    "job: {name: null}",
    "job: {name: [a]}",
    "train: 3",
]


def described(schema, path=""):
    """Every key below a schema, with its own schema."""
    for key, value in schema.get("properties", {}).items():
        yield f"{path}{key}", value
        yield from described(value, f"{path}{key}.")


def main():
    trainer = sys.argv[1]
    run = lambda *arguments: subprocess.run([trainer, *arguments], check=True, capture_output=True, text=True).stdout
    schema = json.loads(run("schema"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    faults = []

    for path in sorted((ROOT / "configs").glob("*.yaml")):
        faults += [f"{path.name}: {e.json_path}: {e.message}" for e in validator.iter_errors(yaml.safe_load(path.read_text()))]
    for kind in ("bert", "gpt"):
        faults += [f"starter {kind}: {e.message}" for e in validator.iter_errors(yaml.safe_load(run("init", kind)))]
    faults += [f"refused: {text}" for text in GOOD if not validator.is_valid(yaml.safe_load(text))]
    faults += [f"accepted: {text}" for text in BAD if validator.is_valid(yaml.safe_load(text))]
    keys = list(described(schema))
    faults += [f"{key}: no description" for key, value in keys if not value.get("description")]
    leaves = [(key, value) for key, value in keys if "properties" not in value]
    faults += [f"{key}: no default" for key, value in leaves if "default" not in value]
    faults += [f"{key}: its default is not valid" for key, value in leaves
               if not Draft202012Validator(value | {"$defs": schema["$defs"]}).is_valid(value["default"])]
    # A unit in the name is a unit in the description.
    faults += [f"{key}: no unit" for key, value in leaves
               if re.search(r"_(s|mb|steps|tokens)$", key) and not value["description"].endswith("]")]

    print("\n".join(faults) or f"{len(keys)} keys, {len(GOOD)} good and {len(BAD)} bad specs: as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
