"""Small random language models in Hugging Face directories, with a byte-level BPE of a text, for tests against transformers."""

import csv
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

PAIRS = Path(__file__).resolve().parents[1] / "data/pairs.tsv"
EOS = "<|endoftext|>"


def texts():
    with open(PAIRS, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [row[column] for row in rows for column in ("#1 String", "#2 String")]


def make_tokenizer(vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[EOS], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def config(form, vocab_size, positions):
    if form == "gpt2":
        return GPT2Config(vocab_size=vocab_size, n_positions=positions, n_embd=48, n_layer=2, n_head=4, bos_token_id=0,
                          eos_token_id=0, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
    return LlamaConfig(vocab_size=vocab_size, max_position_embeddings=positions, hidden_size=48, intermediate_size=80,
                       num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, bos_token_id=0, eos_token_id=0)


def make_directory(directory, form, vocab_size=320, positions=64, spread=0.0, with_tokenizer=True):
    """A model and its tokenizer, which is returned. `spread` > 0: weights are normal with this deviation, biases and norms too, so that
    errors show and no two logits are nearly equal."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config(form, vocab_size, positions))
    if spread > 0:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(spread * torch.randn_like(parameter))
                else:
                    parameter.copy_(spread * torch.randn_like(parameter))
    model.save_pretrained(directory)
    if not with_tokenizer:
        return None
    tokenizer = make_tokenizer(vocab_size)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS).save_pretrained(directory)
    return tokenizer
