#!/usr/bin/env python3
"""The Python peer of a bert_classifier job: the same training in PyTorch and transformers, a plain good-practice loop.

Batches are padded to their longest pair; AdamW is fused; biases and norms don't decay; the learning rate warms up and
falls linearly; gradients are clipped; matrix products run under autocast. Prints one JSON object. With --records it
also writes a line per logged step, as metrics.jsonl of trainer has them.
"""

import time

PROCESS_START = time.time()

import argparse
import csv
import json
import resource
import sys

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup
from transformers.utils import logging

IMPORTED = time.time()


def read_pairs(path):
    """Rows of a file in MRPC's format; it has no quoting, and may begin with a BOM."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        return [(row["#1 String"], row["#2 String"], int(row["Quality"]))
                for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def make_loader(pairs, tokenizer, args, batch_size, shuffle):
    def collate(rows):
        first, second, labels = zip(*rows)
        batch = tokenizer(list(first), list(second), truncation=True, max_length=args.max_length, padding="longest",
                          return_tensors="pt")
        return batch, torch.tensor(labels)

    return DataLoader(pairs, batch_size=batch_size, shuffle=shuffle, collate_fn=collate,
                      generator=torch.Generator().manual_seed(args.seed), pin_memory=args.device == "cuda")


def load_model(args):
    torch.manual_seed(args.seed)  # the classifier's initial weights
    options = {} if args.dropout is None else {
        "hidden_dropout_prob": args.dropout, "attention_probs_dropout_prob": args.dropout}
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=args.num_labels, **options)
    return model.to(args.device)


def parameter_groups(model, weight_decay):
    decayed = {True: [], False: []}
    for name, parameter in model.named_parameters():
        decayed["bias" not in name and "LayerNorm" not in name].append(parameter)
    return [{"params": decayed[True], "weight_decay": weight_decay}, {"params": decayed[False], "weight_decay": 0.0}]


def autocast(args):
    dtype = torch.bfloat16 if args.precision == "bf16" else None
    return torch.autocast(args.device, dtype=dtype, enabled=dtype is not None)


def windows(loader, size):
    """Lists of `size` micro-batches; the last of an epoch may be shorter."""
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def evaluate(model, loader, args):
    model.eval()
    loss_sum = 0.0
    predictions, targets = [], []
    with torch.inference_mode(), autocast(args):
        for batch, labels in loader:
            logits = model(**batch.to(args.device)).logits.float()
            loss_sum += torch.nn.functional.cross_entropy(logits, labels.to(args.device), reduction="sum").item()
            predictions.append(logits.argmax(1).cpu())
            targets.append(labels)
    model.train()
    predicted, target = torch.cat(predictions), torch.cat(targets)
    result = {"loss": loss_sum / len(target), "accuracy": (predicted == target).double().mean().item()}
    if args.num_labels == 2:
        both = (predicted & target).sum().item()
        called = (predicted + target).sum().item()
        result["f1"] = 2 * both / called if called else 0.0
    return result


def train(args, record=lambda line: None):
    """Calls record(dict) after every logged step; returns the evaluations."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = load_model(args)
    model.train()
    loader = make_loader(read_pairs(args.train), tokenizer, args, args.batch_size, args.shuffle)
    dev = make_loader(read_pairs(args.dev), tokenizer, args, args.batch_size, False) if args.dev else None
    steps_per_epoch = -(-len(loader) // args.accumulation)
    total_steps = args.steps or args.epochs * steps_per_epoch
    optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.lr, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, args.warmup_steps, total_steps)
    step, evaluations = 0, []
    logged_loss, logged_targets = torch.zeros((), device=args.device), 0
    while step < total_steps:
        for window in windows(loader, args.accumulation):
            num_targets = sum(len(labels) for _, labels in window)
            for batch, labels in window:
                labels = labels.to(args.device, non_blocking=True)
                with autocast(args):
                    logits = model(**batch.to(args.device)).logits
                    loss_sum = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
                (loss_sum / num_targets).backward()
                logged_loss += loss_sum.detach()
            lr = schedule.get_last_lr()[0]
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip or float("inf"))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            logged_targets += num_targets
            if step % args.every == 0 or step == total_steps:
                loss = logged_loss.item() / logged_targets  # waits for the device
                record({"kind": "step", "unix_s": time.time(), "step": step, "loss": loss,
                        "grad_norm": grad_norm.item(), "lr": lr})
                logged_loss.zero_()
                logged_targets = 0
            if step == total_steps:
                break
        if dev and (step % steps_per_epoch == 0 or step == total_steps):
            evaluations.append({"step": step, **evaluate(model, dev, args)})
            record({"kind": "evaluation", "unix_s": time.time(), **evaluations[-1]})
    return evaluations


def peak_memory_bytes(args):
    if args.device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--num-labels", type=int, default=2)
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="instead of epochs")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--dropout", type=float, help="default: as in config.json")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--every", type=int, default=10, help="steps between records")
    parser.add_argument("--records", help="file of JSON lines")
    return parser.parse_args(argv)


def main():
    args = arguments()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if args.threads:
        torch.set_num_threads(args.threads)
    lines = open(args.records, "w", buffering=1) if args.records else None
    records = []

    def record(line):
        records.append(line)
        if lines:
            lines.write(json.dumps(line) + "\n")

    begin = time.time()
    evaluations = train(args, record)
    steps = [r for r in records if r["kind"] == "step"]
    json.dump({
        "import_s": IMPORTED - PROCESS_START,
        "first_record_s": steps[0]["unix_s"] - PROCESS_START,  # from this file's first line; Python's own start is before
        "train_s": time.time() - begin,
        "threads": torch.get_num_threads(),
        "peak_memory_bytes": peak_memory_bytes(args),
        "losses": [r["loss"] for r in steps],
        "evaluations": evaluations,
    }, sys.stdout)
    print()


if __name__ == "__main__":
    main()
