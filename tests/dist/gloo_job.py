"""A PyTorch job that fails in its first N attempts: gloo_job.py N."""

import os
import sys

import torch
import torch.distributed as dist

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
assert ones.item() == dist.get_world_size()
print(f"attempt {attempt} joined", flush=True)
os._exit(1 if attempt < int(sys.argv[1]) else 0)
