#include "job/bert_config.h"

#include "core/error.h"
#include "job/config_reader.h"
#include "job/faults.h"

// C channels (hidden size), I intermediate size, L layers.

namespace trainer {
namespace {

// Kept for backward, a token and layer: two fp32 residuals; in the compute type the inputs of the linear
// layers (also of the output of attention), q, k, v, the outputs that dropout and norm read, and the MLP's
// middle before and after GELU. Dropout keeps no masks, attention no probabilities.
int64_t activation_bytes_per_token(const BertConfig& b, int64_t compute_bytes) {
  const int64_t copies = compute_bytes < 4 ? 2 : 0;  // of the residuals, as inputs of linear layers
  return 2 * 4 * b.hidden_size + compute_bytes * ((6 + copies) * b.hidden_size + 2 * b.intermediate_size);
}

}  // namespace

BertConfig BertConfig::load(const std::filesystem::path& path) {
  BertConfig config;
  ConfigReader reader(path);
  config.json = reader.text();
  reader.only("model_type", "bert");
  if (!reader.present("model_type")) reader.fault("model_type", "\"bert\"");
  reader.only("position_embedding_type", "absolute");
  reader.only("is_decoder", false);
  reader.only("add_cross_attention", false);
  reader.integer("vocab_size", config.vocab_size, 1, kMostRows);
  reader.integer("hidden_size", config.hidden_size, 1, kMostChannels);
  reader.integer("num_hidden_layers", config.num_hidden_layers, 1, kMostLayers);
  reader.integer("num_attention_heads", config.num_attention_heads, 1, kMostChannels);
  reader.integer("intermediate_size", config.intermediate_size, 1, kMostChannels);
  reader.activation("hidden_act", config.hidden_act);
  reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 1);
  reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 1);
  if (reader.present("classifier_dropout")) {
    reader.number("classifier_dropout", config.classifier_dropout.emplace(), 1);
  }
  reader.integer("max_position_embeddings", config.max_position_embeddings, 1, kMostRows);
  reader.integer("type_vocab_size", config.type_vocab_size, 1, kMostRows);
  reader.number("initializer_range", config.initializer_range, 1);
  reader.number("layer_norm_eps", config.layer_norm_eps, 1);
  if (reader.is_null("pad_token_id")) config.pad_token_id = -1;
  reader.integer("pad_token_id", config.pad_token_id, 0, kMostRows);
  if (config.pad_token_id >= config.vocab_size) reader.fault("pad_token_id", "an id below vocab_size");
  if (config.hidden_size % config.num_attention_heads != 0) {
    reader.fault("hidden_size",
                 fmt::format("a multiple of num_attention_heads ({})", config.num_attention_heads));
  }
  reader.throw_if_any("that can be trained");
  return config;
}

ParameterCount BertConfig::weights(int64_t num_labels) const {
  const int64_t c = hidden_size, i = intermediate_size;
  const int64_t embeddings = (vocab_size + max_position_embeddings + type_vocab_size) * c;
  const int64_t layer = 4 * c * c + 2 * c * i;  // q, k, v are one tensor
  return {embeddings + num_hidden_layers * layer + c * c + c * num_labels, 3 + 4 * num_hidden_layers + 2};
}

ParameterCount BertConfig::biases_and_norms(int64_t num_labels) const {
  const int64_t c = hidden_size, i = intermediate_size;
  const int64_t norm = 2 * c;
  const int64_t layer = 4 * c + i + c + 2 * norm;
  return {norm + num_hidden_layers * layer + c + num_labels, 2 + 8 * num_hidden_layers + 2};
}

double BertConfig::forward_flops(double sequences, double tokens, double pairs, int64_t num_labels) const {
  const auto c = static_cast<double>(hidden_size), i = static_cast<double>(intermediate_size);
  const auto layers = static_cast<double>(num_hidden_layers);
  const double attention =
      layers * (3 * tokens * c * c + 2 * pairs * c);  // q, k, v; q k^T, its product with v
  const double rest = (tokens * (layers - 1) + sequences) * (c * c + 2 * c * i);  // output projection and MLP
  const double head = sequences * c * (c + static_cast<double>(num_labels));
  return 2 * (attention + rest + head);
}

BertConfig load_bert_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size) {
  const auto& s = job.spec;
  const auto path = std::filesystem::path(s.model.pretrained) / "config.json";
  BertConfig config;
  try {
    config = BertConfig::load(path);
  } catch (const SpecError& error) {
    faults.add("model.pretrained", "{}", error.what());
    return config;
  }
  if (s.data.max_length > config.max_position_embeddings) {
    faults.add("data.max_length", "got {}; {} has max_position_embeddings {}", s.data.max_length,
               path.string(), config.max_position_embeddings);
  }
  if (!s.data.train.text_pair.empty() && config.type_vocab_size < 2) {
    faults.add("data.train.text_pair", "got {}; {} has type_vocab_size {}, a pair needs 2",
               spec::shown(s.data.train.text_pair), path.string(), config.type_vocab_size);
  }
  if (tokenizer_vocab_size > config.vocab_size) {
    faults.add("model.pretrained", "the tokenizer has {} tokens; {} has vocab_size {}", tokenizer_vocab_size,
               path.string(), config.vocab_size);
  }
  return config;
}

BertConfig load_bert_config(const Job& job, int64_t tokenizer_vocab_size) {
  JobFaults faults(job.spec.said);
  BertConfig config = load_bert_config(job, faults, tokenizer_vocab_size);
  faults.throw_if_any();
  return config;
}

ModelCost bert_cost(const Job& job, double sequence_tokens) {
  const auto& train = job.spec.train;
  const int64_t num_labels = job.spec.model.num_labels;
  const int64_t compute_bytes = train.precision == spec::Precision::kFp32 ? 4 : 2;
  const int64_t most_tokens =
      train.batch_tokens > 0 ? train.batch_tokens : train.batch_size * job.spec.data.max_length;
  const BertConfig b = load_bert_config(job);
  return {.weights = b.weights(num_labels),
          .biases_and_norms = b.biases_and_norms(num_labels),
          .matrix_parameters = b.num_hidden_layers *
                               (4 * b.hidden_size * b.hidden_size + 2 * b.hidden_size * b.intermediate_size),
          .forward_flops = b.forward_flops(1, sequence_tokens, sequence_tokens * sequence_tokens, num_labels),
          .activation_bytes = static_cast<double>(most_tokens) * static_cast<double>(b.num_hidden_layers) *
                              static_cast<double>(activation_bytes_per_token(b, compute_bytes))};
}

}  // namespace trainer
