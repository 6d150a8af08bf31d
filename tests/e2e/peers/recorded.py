"""A program under torch's @record, which writes an exception to the launcher's error file. Its result is a sum."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot")
    parser.add_argument("--result", required=True)
    parser.add_argument("--fail-at-epoch", type=int, default=-1)
    parser.add_argument("--attempts-that-fail", type=int, default=1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    if args.fail_at_epoch >= 0 and dist.get_rank() == 1:
        if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < args.attempts_that_fail:
            raise ValueError(f"no value of epoch {args.fail_at_epoch} is right")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        with open(args.result, "w") as file:
            json.dump(total.item(), file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
