#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "job/estimate.h"
#include "job/job.h"

namespace trainer {

using spec::Activation;

// config.json of a Hugging Face BERT; defaults are those of transformers' BertConfig.
struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::optional<double> classifier_dropout;  // none: hidden_dropout_prob
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;  // its embedding gets no gradient; -1: none
  std::string json;          // as read: what is not above is kept when the model is saved

  // Throws SpecError with every fault of the file.
  static BertConfig load(const std::filesystem::path& path);

  // Of BertForSequenceClassification with its pooler: embeddings and the weights of linear layers; the rest.
  ParameterCount weights(int64_t num_labels) const;
  ParameterCount biases_and_norms(int64_t num_labels) const;
  // Multiply-accumulates × 2 of a forward pass as this program executes it: no padding, and the last layer's
  // output and MLP for first tokens only. `pairs`: of tokens that attend to each other, the sum of squared
  // lengths.
  double forward_flops(double sequences, double tokens, double pairs, int64_t num_labels) const;
};

class JobFaults;

// The config of the job's model. Adds every fault of the file, and of the job where the model has no room for
// it. `tokenizer_vocab_size`: when > 0, ids below it must have embeddings.
BertConfig load_bert_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size = 0);
// Throws them as SpecError.
BertConfig load_bert_config(const Job& job, int64_t tokenizer_vocab_size = 0);

// `sequence_tokens`: length of the sequence that forward_flops is of. Throws SpecError.
ModelCost bert_cost(const Job& job, double sequence_tokens);

}  // namespace trainer
