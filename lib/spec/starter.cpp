#include "spec/starter.h"

#include "core/error.h"

namespace trainer::spec {
namespace {

constexpr std::string_view kBert =
    R"(# Fine-tunes a pretrained BERT on a table of texts and labels. Run it with: trainer run JOB.yaml
# `trainer check JOB.yaml` says what it will do, `trainer schema` lists every key; --set train.epochs=1 changes one.
# Paths are relative to the directory that trainer is started in. ${VAR} and ${VAR:-default} come from the environment.

job:
  name: my_bert                 # results go to runs/my_bert
  seed: 42

model:
  type: bert_classifier
  pretrained: assets/minilm-l6  # a Hugging Face directory: config.json, model.safetensors, vocab.txt
  num_labels: 2
  # problem_type: regression    # or multi_label_classification

data:
  train:
    path: data/mrpc/train.tsv   # .tsv or .csv
    text: "#1 String"           # columns by name, or by number from 0
    text_pair: "#2 String"      # leave out for a single text
    label: Quality
  validation:
    path: data/mrpc/dev.tsv     # what is not said is as in train
  # label_names: [different, same]  # when labels are words
  max_length: 128               # tokens

train:
  epochs: 3                     # or steps: 1000
  batch_size: 16                # per worker and micro-batch
  gradient_accumulation: 1
  precision: bf16               # fp32, bf16 or fp16
  clip_grad_norm: 1.0

optimizer:
  type: adamw
  lr: 5.0e-5
  weight_decay: 0.01

schedule:
  type: linear
  warmup_ratio: 0.1

evaluation:
  every: epoch                  # or a number of steps
  metrics: [loss, accuracy, f1]
  best: f1                      # the model that is best by it is kept
  # early_stop_patience: 2

launch:
  nproc_per_node: auto          # one worker per GPU; a number for as many
)";

constexpr std::string_view kGpt =
    R"(# Trains a language model on text. Run it with: trainer run JOB.yaml, and then: trainer generate runs/my_gpt/best
# `trainer check JOB.yaml` says what it will do, `trainer schema` lists every key; --set train.steps=100 changes one.
# Paths are relative to the directory that trainer is started in. ${VAR} and ${VAR:-default} come from the environment.

job:
  name: my_gpt                  # results go to runs/my_gpt
  seed: 1337

model:
  type: gpt
  gpt:                          # a new model of GPT-2's form; preset: gpt2, gpt2-xl, llama-1b, ... for a known shape
    layers: 6
    heads: 6
    hidden_size: 384
    # positions: rope           # Llama's form: these five
    # norm: rms
    # activation: swiglu
    # bias: false
    # tie_embeddings: false
  # pretrained: path/to/gpt2    # instead of gpt: a Hugging Face directory of a GPT-2 or Llama, to fine-tune
  # hidden_dropout: 0.1

data:
  train:
    path: data/shakespeare/input.txt  # text, .jsonl, .parquet, or tokens that `trainer prepare` made
  validation_fraction: 0.1      # the last tenth; or validation: {path: ...}
  tokenizer:
    type: char                  # byte, or bpe with path: assets/gpt2-tokenizer; none with pretrained or prepared tokens
  max_length: 256               # tokens of a sequence
  # windows: random             # sequences from anywhere, as nanoGPT; else each part of the text once an epoch
  # documents: separate         # no attention across the ends of documents

train:
  steps: 2000                   # or epochs: 1
  batch_size: 8                 # sequences per worker and micro-batch
  gradient_accumulation: 1
  precision: bf16               # fp32, bf16 or fp16
  clip_grad_norm: 1.0
  # recompute: block            # less memory, a third more work

optimizer:
  type: adamw
  lr: 1.0e-3
  beta2: 0.99
  weight_decay: 0.1

schedule:
  type: cosine
  warmup_steps: 100
  min_lr_ratio: 0.1

evaluation:
  every: 500                    # steps
  metrics: [loss, perplexity, bits_per_byte]
  best: loss                    # the model that is best by it is kept

launch:
  nproc_per_node: auto          # one worker per GPU; a number for as many
)";

}  // namespace

std::string starter(std::string_view kind) {
  if (kind == "bert") return std::string(kBert);
  if (kind == "gpt") return std::string(kGpt);
  fail<SpecError>("trainer init {}: no such starter; expected bert or gpt", kind);
}

}  // namespace trainer::spec
