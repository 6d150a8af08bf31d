"""A tiny GPT-2 and a tiny Llama, trained by trainer and by PyTorch with transformers on the same windows: fp32, no dropout,
clipping, AdamW that spares biases and norms, a cosine schedule with warm-up and floor. Losses, gradient norms, learning
rates, evaluation, saved weights and their moving average must agree, and runs that differ only in how the work is split or
recomputed must agree with each other.

    gpt_train.py TRAINER
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny_gpt
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

VOCAB, LENGTH, STEPS, GLOBAL_BATCH = 320, 48, 10, 4
LR, WARMUP, FLOOR, DECAY, CLIP, EMA = 2e-3, 3, 0.1, 0.1, 0.5, 0.8
FRACTION = 0.2


def check(what, difference, limit):
    print(f"{what}: {difference:.1e} (limit {limit:.0e})", flush=True)
    assert difference <= limit, what  # NaN fails too


def relative(got, expected):
    assert len(got) == len(expected), (got, expected)
    return max(abs(a - b) / abs(b) for a, b in zip(got, expected))


def learning_rate(step):
    if step < WARMUP:
        return LR * step / WARMUP
    cosine = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    return LR * (FLOOR + (1 - FLOOR) * cosine)


class Reference:
    """PyTorch's plain loop, window by window."""

    def __init__(self, directory, tokens, eos, separate):
        self.model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
        self.eos, self.separate = eos, separate
        cut = self.cut(tokens)
        self.windows, self.validation = self.split(tokens[:cut]), self.split(tokens[cut:])
        # Ragged in all ways: the last window, the last step of an epoch, and ten steps pass an epoch's end.
        steps_per_epoch = -(-len(self.windows) // GLOBAL_BATCH)
        assert steps_per_epoch < STEPS and len(self.windows) % GLOBAL_BATCH and len(self.validation) > 2
        assert len(self.windows[-1]) < LENGTH + 1 and len(self.validation[-1]) < LENGTH + 1

    def cut(self, tokens):
        """Where the validation part begins: with documents that are known, at the nearest one's beginning."""
        exact = int(len(tokens) * (1 - FRACTION))
        if not self.separate:
            return exact
        return min(np.flatnonzero(tokens[:-1] == self.eos) + 1, key=lambda start: abs(start - exact))

    def split(self, tokens):
        return [tokens[i:i + LENGTH + 1] for i in range(0, len(tokens) - 1, LENGTH)]

    def loss(self, window):
        """Summed over the window's targets, and these."""
        ids, targets = torch.tensor(window[:-1])[None], torch.tensor(window[1:])
        length = ids.shape[1]
        positions, mask = torch.arange(length), torch.ones(length, length).tril().bool()
        if self.separate:
            ends = (ids[0] == self.eos).long()
            document = ends.cumsum(0) - ends
            mask &= document[:, None] == document[None]
            positions = positions - torch.tensor([int((document < d).sum()) for d in document])
            targets = targets.where(ends == 0, -100)
        bias = torch.zeros(length, length).masked_fill(~mask, torch.finfo(torch.float32).min)
        logits = self.model(input_ids=ids, position_ids=positions[None], attention_mask=bias[None, None]).logits[0]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="sum"), targets[targets >= 0]

    def train(self):
        parameters = dict(self.model.named_parameters())
        optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": DECAY},
             {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}], lr=LR)
        self.means = {name: p.detach().clone() for name, p in parameters.items()}
        self.steps = []
        order = [range(i, min(i + GLOBAL_BATCH, len(self.windows))) for i in range(0, len(self.windows), GLOBAL_BATCH)]
        for step in range(STEPS):
            parts = [self.loss(self.windows[i]) for i in order[step % len(order)]]
            loss = sum(p[0] for p in parts) / sum(len(p[1]) for p in parts)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
            optimizer.step()
            optimizer.zero_grad()
            for name, mean in self.means.items():
                mean.mul_(EMA).add_(parameters[name].detach(), alpha=1 - EMA)
            self.steps.append({"loss": loss.item(), "grad_norm": norm.item(), "lr": learning_rate(step)})
        assert self.steps[0]["grad_norm"] > CLIP
        return self

    def evaluate(self, model, token_bytes):
        self.model = model
        with torch.no_grad():
            parts = [self.loss(window) for window in self.validation]
        loss_sum, targets = sum(p[0].item() for p in parts), torch.cat([p[1] for p in parts])
        loss = loss_sum / len(targets)
        num_bytes = sum(token_bytes[i] for i in targets.tolist())
        return {"loss": loss, "perplexity": math.exp(loss), "bits_per_byte": loss_sum / math.log(2) / num_bytes}


class Case:
    def __init__(self, trainer, scratch, form, separate):
        self.trainer, self.scratch = trainer, scratch / f"{form}_{separate}"
        self.model, self.tokens = self.scratch / "model", self.scratch / "tokens.bin"
        self.separate = separate
        self.tokenizer = tiny_gpt.make_directory(self.model, form, VOCAB, LENGTH)
        self.eos = self.tokenizer.token_to_id(tiny_gpt.EOS)
        documents = [self.tokenizer.encode(text).ids + [self.eos] for text in tiny_gpt.texts()[:34]]
        self.ids = np.array(sum(documents, []))
        self.ids.astype("<u2").tofile(self.tokens)  # as nanoGPT does

    def run(self, name, processes=1, batch_size=1, accumulation=4, recompute="none", ema=0.0):
        output = self.scratch / name
        job = self.scratch / f"{name}.yaml"
        job.write_text(json.dumps({  # JSON is YAML
            "job": {"name": "parity", "output_dir": str(output)},
            "model": {"type": "gpt", "pretrained": str(self.model)},
            "data": {"train": {"path": str(self.tokens)}, "validation_fraction": FRACTION, "max_length": LENGTH,
                     "documents": "separate" if self.separate else "joined", "shuffle": False},
            "train": {"steps": STEPS, "batch_size": batch_size, "gradient_accumulation": accumulation,
                      "clip_grad_norm": CLIP, "recompute": recompute, "ema_decay": ema},
            "optimizer": {"type": "adamw", "lr": LR, "weight_decay": DECAY},
            "schedule": {"type": "cosine", "warmup_steps": WARMUP, "min_lr_ratio": FLOOR},
            "evaluation": {"every": STEPS, "batch_size": 3, "metrics": ["loss", "perplexity", "bits_per_byte"]},
            "launch": {"nproc_per_node": processes},
            "logging": {"every_steps": 1},
            "hardware": {"device": "cpu"}}), encoding="utf-8")
        done = subprocess.run([self.trainer, "run", job], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\ntrainer run: exit code {done.returncode}")
        records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        steps = [record for record in records if record["kind"] == "step"]
        evaluations = [record for record in records if record["kind"] == "evaluation"]
        assert len(evaluations) == 1
        return steps, evaluations[0]["metrics"]

    def saved(self, name):
        model, info = AutoModelForCausalLM.from_pretrained(self.scratch / name / "final", output_loading_info=True,
                                                           attn_implementation="eager")
        assert not any(info.values()), info
        return model

    def check_weights(self, what, model, expected, start):
        """The change of each weight by training, against the reference's. But for the bias of keys: it changes no
        softmax, so that its gradient is rounding alone."""
        worst = 0.0
        for name, weight in model.named_parameters():
            got, change = weight.detach(), expected[name].detach() - start[name]
            if name.endswith("c_attn.bias"):
                got, change = ([part for i, part in enumerate(t.chunk(3)) if i != 1] for t in (got - start[name], change))
                got, change = torch.cat(got), torch.cat(change)
            else:
                got = got - start[name]
            worst = max(worst, float((got - change).norm() / change.norm()))
        check(f"{what}: change of the weights, worst relative", worst, 2e-4)


def test(case, what, splits, more):
    start = AutoModelForCausalLM.from_pretrained(case.model).state_dict()
    reference = Reference(case.model, case.ids, case.eos, case.separate).train()
    steps, metrics = case.run("base")
    for key, limit in (("loss", 1e-5), ("grad_norm", 1e-4), ("lr", 1e-6)):
        check(f"{what}: {key} of {STEPS} steps, relative",
              relative([s[key] for s in steps[key == "lr":]], [s[key] for s in reference.steps[key == "lr":]]), limit)
    case.check_weights(what, case.saved("base"), dict(reference.model.named_parameters()), start)
    # A token of a byte-level vocabulary is written with a character for each byte.
    token_bytes = [0 if i == case.eos else len(case.tokenizer.id_to_token(i)) for i in range(VOCAB)]
    expected = reference.evaluate(case.saved("base"), token_bytes)
    check(f"{what}: {', '.join(expected)}, relative", relative([metrics[k] for k in expected], list(expected.values())),
          1e-5)

    for processes, batch_size, accumulation in splits:
        other, other_metrics = case.run(f"{processes}x{batch_size}x{accumulation}", processes, batch_size, accumulation)
        name = f"{what}: {processes} processes, batch {batch_size}, accumulation {accumulation}"
        check(f"{name}, losses, relative", relative([s["loss"] for s in other], [s["loss"] for s in steps]), 1e-5)
        check(f"{name}, evaluation, relative", relative(list(other_metrics.values()), list(metrics.values())), 1e-5)
    if not more:
        return
    for recompute in ("mlp", "block"):
        other, other_metrics = case.run(recompute, recompute=recompute)
        for key in ("loss", "grad_norm"):
            assert [s[key] for s in other] == [s[key] for s in steps], (recompute, key)
        assert other_metrics == metrics
        assert all(torch.equal(a, b) for a, b in zip(case.saved(recompute).parameters(), case.saved("base").parameters()))
        print(f"{what}: recompute {recompute} is the same to the bit", flush=True)

    other, metrics = case.run("ema", ema=EMA)
    assert [s["loss"] for s in other] == [s["loss"] for s in steps]
    case.check_weights(f"{what}: moving average", case.saved("ema"), reference.means, start)
    expected = reference.evaluate(case.saved("ema"), token_bytes)
    check(f"{what}: moving average: {', '.join(expected)}, relative",
          relative([metrics[k] for k in expected], list(expected.values())), 1e-5)


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # faster for matrices as small as these
    with tempfile.TemporaryDirectory() as scratch:
        for form, separate, splits, more in (("gpt2", False, [(2, 1, 2), (4, 1, 1), (1, 4, 1)], False),
                                             ("llama", False, [], False), ("llama", True, [(2, 1, 2), (4, 1, 1)], True)):
            case = Case(sys.argv[1], Path(scratch), form, separate)
            test(case, f"{form}, documents {'separate' if separate else 'joined'}", splits, more)


main()
