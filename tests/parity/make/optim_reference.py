"""Writes tests/data/optim_reference.json: what torch.optim, transformers' schedules, clip_grad_norm_ and
torch.amp.GradScaler do, for tests/unit/optim. Run from the repository root."""

import json

import torch
from transformers import optimization as hf

STEPS = 20
SHAPES = [[3, 4], [5], [2, 3], [1]]  # the first two decay, the others do not
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, dict(lr=0.01, betas=(0.9, 0.98), eps=1e-6), 0.1),
    "sgd": (torch.optim.SGD, dict(lr=0.05), 0.01),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.05, momentum=0.9), 0.01),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True), 0.01),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.05, eps=1e-6), 0.01),
}


def tensors(seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=g) for s in SHAPES]


def flat(ts):
    return [round(x, 9) for t in ts for x in t.detach().flatten().tolist()]


def optimizers():
    for name, (kind, options, decay) in OPTIMIZERS.items():
        params = [torch.nn.Parameter(t) for t in tensors(0)]
        opt = kind([{"params": params[:2], "weight_decay": decay}, {"params": params[2:], "weight_decay": 0.0}], **options)
        after = []
        for step in range(STEPS):
            for p, g in zip(params, tensors(100 + step)):
                p.grad = g
            opt.step()
            after.append(flat(params))
        yield name, after


def schedules():
    total, lr = 50, 0.002
    p = [torch.nn.Parameter(torch.zeros(1))]
    make = {
        "constant": lambda o, w: hf.get_constant_schedule_with_warmup(o, w),
        "linear": lambda o, w: hf.get_linear_schedule_with_warmup(o, w, total),
        "cosine": lambda o, w: hf.get_cosine_schedule_with_warmup(o, w, total),
        "cosine_min": lambda o, w: hf.get_cosine_with_min_lr_schedule_with_warmup(o, w, total, min_lr_rate=0.1),
        "polynomial": lambda o, w: hf.get_polynomial_decay_schedule_with_warmup(o, w, total, lr_end=0.1 * lr, power=2.0),
        "inverse_sqrt": lambda o, w: hf.get_inverse_sqrt_schedule(o, w),
    }
    for name, f in make.items():
        for warmup in (0, 7):
            opt = torch.optim.SGD(p, lr=lr)
            schedule = f(opt, warmup)
            rates = []
            for _ in range(total + 1):
                rates.append(schedule.get_last_lr()[0])
                opt.step()
                schedule.step()
            yield {"name": name, "warmup": warmup, "lr": rates}


def clip():
    for max_norm in (0.5, 100.0):
        params = [torch.nn.Parameter(t) for t in tensors(0)]
        for p, g in zip(params, tensors(1)):
            p.grad = g
        norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
        yield {"max_norm": max_norm, "norm": norm.item(), "clipped": flat([p.grad for p in params])}


def scaler():
    """Scale before each step and whether it was taken; an inf is put into the gradients of steps 2, 3 and 9."""
    s = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=2.0, backoff_factor=0.25, growth_interval=3)
    p = torch.nn.Parameter(torch.zeros(2))
    opt = torch.optim.SGD([p], lr=1.0)
    out = []
    for step in range(14):
        scale = s.get_scale()
        s.scale(p.sum()).backward()
        if step in (2, 3, 9):
            p.grad[0] = float("inf")
        before = p.detach().clone()
        s.step(opt)
        s.update()
        opt.zero_grad()
        out.append({"scale": scale, "taken": bool((p != before).all())})
    return out


with open("tests/data/optim_reference.json", "w") as f:
    json.dump(
        {
            "torch": torch.__version__,
            "shapes": SHAPES,
            "initial": flat(tensors(0)),
            "gradients": [flat(tensors(100 + step)) for step in range(STEPS)],
            "optimizers": dict(optimizers()),
            "schedules": list(schedules()),
            "clip_gradients": flat(tensors(1)),
            "clip": list(clip()),
            "scaler": scaler(),
        },
        f,
    )
    f.write("\n")
