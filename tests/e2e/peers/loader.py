"""Data-parallel training from a DataLoader with worker processes and a DistributedSampler."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        x = torch.tensor([index / 96, 1.0])
        return x, x[:1] ** 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--fail-at-epoch", type=int, default=-1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    first_epoch = 0
    if os.path.exists(args.snapshot):
        snapshot = torch.load(args.snapshot)
        model.load_state_dict(snapshot["model"])
        first_epoch = snapshot["epochs"]
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(Squares(), seed=2)
    loader = DataLoader(Squares(), batch_size=8, sampler=sampler, num_workers=2)

    for epoch in range(first_epoch, 3):
        sampler.set_epoch(epoch)
        for batch, (x, y) in enumerate(loader):
            # In the middle of an epoch, when the loader's workers are at work.
            if (epoch, batch, dist.get_rank()) == (args.fail_at_epoch, 2, 1):
                if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                    os._exit(23)
            loss = torch.nn.functional.mse_loss(model(x), y)
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
