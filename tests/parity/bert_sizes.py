"""Writes tests/data/job/bert_sizes.json: parameters and forward FLOPs of transformers' BertForSequenceClassification.

The FLOPs are counted by torch.utils.flop_counter in two parts, since our model computes the last layer's output
projection and MLP for first tokens only: a full pass, and that part of the last layer alone.
"""

import json
import pathlib

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification

SHAPES = {
    "minilm_l6": dict(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                      intermediate_size=1536),
    "bert_base": dict(),
    "tiny": dict(vocab_size=101, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                 max_position_embeddings=31, type_vocab_size=1),
}


def flops(run):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


def main():
    rows = []
    for name, shape in SHAPES.items():
        for num_labels in (1, 2, 5):
            with torch.device("meta"):
                model = BertForSequenceClassification(
                    BertConfig(**shape, num_labels=num_labels, attn_implementation="eager")).eval()
                batch, tokens = 3, 17
                ids = torch.zeros(batch, tokens, dtype=torch.long)
                hidden = torch.zeros(batch, tokens, model.config.hidden_size)
                layer = model.bert.encoder.layer[-1]

                def last(x):
                    y = layer.attention.output(x, x)
                    layer.output(layer.intermediate(y), y)

                full = flops(lambda: model(input_ids=ids))
                skipped = flops(lambda: last(hidden)) - flops(lambda: last(hidden[:, :1]))
            rows.append({
                "name": name, "config": {"model_type": "bert"} | shape, "num_labels": num_labels,
                "parameters": sum(p.numel() for p in model.parameters()),
                "batch": batch, "tokens": tokens, "forward_flops": full - skipped,
            })
    path = pathlib.Path(__file__).parent.parent / "data" / "job" / "bert_sizes.json"
    path.write_text("[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
