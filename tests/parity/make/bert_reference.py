"""Makes tests/data/reference_bert: a random BERT with a cut vocabulary, and reference.safetensors beside it with what
transformers computes for ragged, padded batches: logits, summed losses and gradients.

    bert_reference.py VOCAB_TXT OUTPUT_DIRECTORY        (VOCAB_TXT: of bert-base-uncased)
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForSequenceClassification

LENGTHS = [7, 12, 3, 25, 1]
# Of the second and third problem, gradients of these only: the file stays small.
FEW = ("classifier", "pooler", "embeddings.LayerNorm", "layer.0.attention.self.query", "layer.1.attention.self.value",
       "layer.1.output")


def cut_vocabulary(path, size):
    """Special tokens, ASCII characters (whole and ##), then the commonest words, in the order of the source."""
    tokens = path.read_text(encoding="utf-8").splitlines()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = [t for t in tokens if t.isascii() and len(t.removeprefix("##")) == 1]
    words = [t for t in tokens if t.isascii() and t.removeprefix("##").isalpha() and len(t.removeprefix("##")) > 1]
    return special + characters + words[: size - len(special) - len(characters)]


def main():
    vocab_path, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    vocabulary = cut_vocabulary(vocab_path, 700)
    (out / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (out / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "model_max_length": 64, "tokenizer_class": "BertTokenizer"}, indent=2) + "\n")
    config = BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=64, max_position_embeddings=64, initializer_range=0.2)

    reference = {}
    lengths = torch.tensor(LENGTHS)
    B, T = len(lengths), int(lengths.max())
    mask = torch.arange(T)[None, :] < lengths[:, None]
    ids = torch.randint(5, len(vocabulary), (B, T)) * mask
    types = (torch.arange(T)[None, :] >= lengths[:, None] // 2) * mask
    reference |= {"lengths": lengths, "input_ids": ids[mask], "token_type_ids": types[mask].long()}

    problems = {"single_label_classification": (3, torch.randint(0, 3, (B,))),
                "multi_label_classification": (4, torch.randint(0, 2, (B, 4)).float()),
                "regression": (1, torch.randn(B))}
    encoder = None
    for problem, (num_labels, labels) in problems.items():
        config.problem_type, config.num_labels = problem, num_labels
        model = BertForSequenceClassification(config).eval()
        for name, parameter in model.named_parameters():  # biases and norms that can be told from their defaults
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.data += 0.1 * torch.randn_like(parameter)
        if encoder is None:
            encoder = model.bert
            encoder.save_pretrained(out)
        model.bert = encoder
        model.zero_grad()
        result = model(input_ids=ids, attention_mask=mask.long(), token_type_ids=types.long(), labels=labels)
        loss_sum = result.loss * (labels.numel())
        loss_sum.backward()
        reference |= {f"{problem}.labels": labels, f"{problem}.logits": result.logits.detach(),
                      f"{problem}.loss_sum": loss_sum.detach()}
        for name, parameter in model.named_parameters():
            if name.startswith("classifier"):
                reference[f"{problem}.{name}"] = parameter.detach().clone()
            gradient = parameter.grad
            if "word_embeddings" in name:  # rows of the batch's ids; all others are zero
                rows = torch.unique(ids[mask])
                assert gradient.norm() == gradient[rows].norm()
                reference[f"{problem}.gradient_rows"], gradient = rows, gradient[rows]
            if problem.startswith("single") or any(part in name for part in FEW):
                reference[f"{problem}.gradient.{name}"] = gradient.clone()
    save_file(reference, out / "reference.safetensors")


main()
