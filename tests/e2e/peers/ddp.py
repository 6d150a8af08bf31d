"""Plain data-parallel training with snapshots, as programs for torchrun are written: it reads RANK and its like through
init_process_group, and goes on from the last snapshot when it is started again."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def fail_once(args, epoch):
    if epoch == args.fail_at_epoch and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
        raise RuntimeError(f"injected at epoch {epoch}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fail-at-epoch", type=int, default=-1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    targets = inputs @ torch.arange(8.0)[:, None]
    mine = slice(dist.get_rank(), None, dist.get_world_size())

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    first_epoch = 0
    if os.path.exists(args.snapshot):
        snapshot = torch.load(args.snapshot)
        model.load_state_dict(snapshot["model"])
        first_epoch = snapshot["epochs"]
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    for epoch in range(first_epoch, args.epochs):
        fail_once(args, epoch)
        loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "epochs": epoch + 1}, args.snapshot + ".new")
            os.replace(args.snapshot + ".new", args.snapshot)
        dist.barrier()

    if dist.get_rank() == 0:
        with open(args.result, "w") as file:
            json.dump({name: value.double().sum().item() for name, value in model.module.state_dict().items()}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
