"""Small random GPT-2s and Llamas, ragged batches: logits (1e-5), loss (1e-5, relative) and gradients (1e-4, relative)
of our packed model equal those of transformers' padded one, and a model that we saved loads in transformers with equal
weights and logits.

    gpt_logits.py MODEL_DUMP        (the binary of model_dump.cpp)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

LENGTHS = [5, 40, 17, 1, 33, 2]
VOCAB = 211

NO_DROPOUT = dict(embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
GPT2 = dict(vocab_size=VOCAB, n_positions=40, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=40, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=2, bos_token_id=0, eos_token_id=[1, 2])
# Wavelengths on both sides of, and between, the two limits.
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=39)
FILES = {  # config and shard size
    "gpt2": (GPT2Config(**GPT2, **NO_DROPOUT), "5GB"),
    "gpt2, untied, sharded": (GPT2Config(**GPT2, **NO_DROPOUT, tie_word_embeddings=False, n_inner=100,
                                         activation_function="gelu", layer_norm_epsilon=1e-3), "40KB"),
    "gpt2, ReLU": (GPT2Config(**GPT2, **NO_DROPOUT, activation_function="relu"), "5GB"),
    "llama": (LlamaConfig(**LLAMA), "5GB"),
    "llama, tied, biases, scaled RoPE, sharded": (
        LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=16,
                    rms_norm_eps=1e-3, rope_parameters=LLAMA3), "40KB"),
    "llama, linear RoPE": (LlamaConfig(**LLAMA, rope_parameters=dict(rope_type="linear", factor=2.0,
                                                                     rope_theta=1000.0)), "5GB"),
}
SHAPE = dict(layers=2, heads=4, hidden_size=48, vocab_size=VOCAB, pad_vocab_to=64)
NEW = {
    "new gpt2": dict(SHAPE),
    "new gpt2 without biases": dict(SHAPE, bias=False, tie_embeddings=False),
    "new llama": dict(SHAPE, kv_heads=2, norm="rms", positions="rope", activation="swiglu", bias=False,
                      intermediate_size=80, rope_theta=500.0, norm_eps=1e-6),
    "new llama with biases": dict(SHAPE, norm="rms", positions="rope", activation="swiglu", tie_embeddings=False),
}


def check(what, difference, limit):
    print(f"{what}: {difference:.2e} (limit {limit:.0e})")
    assert difference <= limit, what


def spread(model):
    """Larger weights than those of training's start, so that errors show; biases and norms that do something."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(4)


def compare(what, model, ours, batch):
    ids, mask, labels = batch
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask.long()).logits[mask]
    check(f"{what}: logits, largest difference", (ours["logits"] - logits).abs().max(), 1e-5)
    model.train()
    out = model(input_ids=ids, attention_mask=mask.long()).logits[mask]
    loss = torch.nn.functional.cross_entropy(out, labels, reduction="sum")
    loss.backward()
    check(f"{what}: summed loss, relative", abs(ours["loss_sum"] / loss.detach() - 1), 1e-5)
    worst = 0.0
    names = set()
    for name, parameter in model.named_parameters():
        if f"gradient.{name}" not in ours:  # biases of a form that transformers has not without
            assert not parameter.any(), name
            continue
        names.add(f"gradient.{name}")
        difference = (ours[f"gradient.{name}"] - parameter.grad).norm()
        worst = max(worst, float(difference / parameter.grad.norm()))
    check(f"{what}: gradients, worst relative", worst, 1e-4)
    assert set(ours) == names | {"logits", "loss_sum"}, set(ours) ^ names
    return logits


def run(model_dump, folder, model_keys, inputs):
    job = {"job": {"name": "dump"}, "model": {"type": "gpt"} | model_keys,
           "data": {"train": {"path": "unread.txt"}, "max_length": max(LENGTHS)}}
    (folder / "job.yaml").write_text(json.dumps(job))
    save_file(inputs, folder / "input.safetensors")
    subprocess.run([model_dump, folder / "job.yaml", folder / "input.safetensors", folder / "output.safetensors",
                    folder / "saved"], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return load_file(folder / "output.safetensors")


def load(directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert not any(info.values()), info
    return model


def main():
    torch.set_num_threads(1)  # faster for matrices as small as these
    torch.manual_seed(5)
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = torch.randint(0, VOCAB, mask.shape) * mask
    labels = torch.randint(0, VOCAB, (int(lengths.sum()),))
    labels[::7] = -100
    batch = ids, mask, labels
    inputs = {"lengths": lengths, "input_ids": ids[mask], "labels": labels}
    for what, (config, shard_size) in FILES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = AutoModelForCausalLM.from_config(config)
            spread(model)
            model.save_pretrained(folder / "source", max_shard_size=shard_size)
            assert (folder / "source" / "model.safetensors").exists() == (shard_size == "5GB")
            ours = run(sys.argv[1], folder, {"pretrained": str(folder / "source")}, inputs)
            logits = compare(what, model, ours, batch)
            again = load(folder / "saved")
            weights = again.state_dict()
            assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())
            with torch.no_grad():
                assert torch.equal(again.eval()(input_ids=ids, attention_mask=mask.long()).logits[mask], logits)
            left, right = model.config.to_dict(), again.config.to_dict()
            different = {key for key in left if left[key] != right.get(key)}
            assert different <= {"_name_or_path", "dtype", "architectures"}, different
    for what, gpt in NEW.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            ours = run(sys.argv[1], folder, {"gpt": gpt, "hidden_dropout": 0, "attention_dropout": 0}, inputs)
            model = load(folder / "saved")
            assert model.config.vocab_size == VOCAB
            compare(what, model, ours, batch)


main()
