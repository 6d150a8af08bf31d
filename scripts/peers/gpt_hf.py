#!/usr/bin/env python3
"""The Python peer of a gpt job on characters: transformers' GPT-2 in a plain good-practice PyTorch loop.

Windows begin anywhere in the text; attention is SDPA's; AdamW is fused; weight matrices decay; gradients are clipped; the
learning rate warms up and falls by a cosine. With --compile the model is compiled by torch.compile. --records gets a line a
logged step, as metrics.jsonl of trainer has them.
"""

import argparse
import json
import math
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LR, MIN_LR_RATIO, BETA2, WEIGHT_DECAY, CLIP = 1e-3, 0.1, 0.99, 0.1, 1.0  # configs/gpt_shakespeare.yaml's


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="text file; the last tenth is for validation")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--every", type=int, default=50, help="steps between records")
    parser.add_argument("--records", required=True, help="file of JSON lines")
    return parser.parse_args(argv)


def encode(text):
    ids = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([ids[c] for c in text]), len(ids)


def train(args, record):
    torch.manual_seed(1337)
    with open(args.text, encoding="utf-8", newline="") as file:
        tokens, vocab = encode(file.read())
    tokens = tokens[: int(0.9 * len(tokens))]
    config = GPT2Config(vocab_size=vocab, n_positions=args.context, n_embd=args.width, n_layer=args.layers,
                        n_head=args.heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
                        attn_implementation="sdpa", bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config)
    model.train()

    def loss_of(x, y):
        logits = model(x, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())

    if args.compile:
        loss_of = torch.compile(loss_of)
    decayed = {True: [], False: []}
    for parameter in model.parameters():
        decayed[parameter.dim() >= 2].append(parameter)
    optimizer = torch.optim.AdamW([{"params": decayed[True], "weight_decay": WEIGHT_DECAY},
                                   {"params": decayed[False], "weight_decay": 0.0}], lr=LR,
                                  betas=(0.9, BETA2), fused=True)

    def factor(step):
        if step < args.warmup_steps:
            return step / max(1, args.warmup_steps)
        progress = (step - args.warmup_steps) / max(1, args.steps - args.warmup_steps)
        return MIN_LR_RATIO + (1 - MIN_LR_RATIO) * 0.5 * (1 + math.cos(math.pi * progress))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    dtype = torch.bfloat16 if args.precision == "bf16" else None
    logged, since = torch.zeros(()), 0
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(tokens) - args.context, (args.batch_size,)).tolist()
        x = torch.stack([tokens[i : i + args.context] for i in starts])
        y = torch.stack([tokens[i + 1 : i + 1 + args.context] for i in starts])
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = loss_of(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
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
