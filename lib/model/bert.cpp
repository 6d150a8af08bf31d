#include "model/bert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/embedding.h"
#include "spec/enums.h"

// B sequences, N tokens in all of them, C channels, I intermediate channels, L labels.

namespace trainer::model {
namespace {

namespace fs = std::filesystem;
using spec::ProblemType;

constexpr std::string_view kPrefix = "bert.";
constexpr const char* kQkv = ".qkv.";  // in the name of the one parameter that transformers has as three

at::Tensor loss_sum(ProblemType problem, const at::Tensor& logits, const at::Tensor& labels) {
  constexpr auto kSum = at::Reduction::Sum;
  switch (problem) {
    case ProblemType::kSingleLabel:
      return at::cross_entropy_loss(logits, labels, {}, kSum);
    case ProblemType::kMultiLabel:
      return at::binary_cross_entropy_with_logits(logits, labels.to(at::kFloat), {}, {}, kSum);
    case ProblemType::kRegression:
      return at::mse_loss(logits, labels.to(at::kFloat).view_as(logits), kSum);
  }
  return {};
}

}  // namespace

BertClassifier::BertClassifier(BertConfig config, Options options)
    : config_(std::move(config)), options_(std::move(options)) {
  const int64_t channels = config_.hidden_size, wide = config_.intermediate_size;
  const std::string embeddings = "bert.embeddings.";
  word_embeddings_ =
      add_parameter(*this, embeddings + "word_embeddings.weight", {config_.vocab_size, channels});
  position_embeddings_ = add_parameter(*this, embeddings + "position_embeddings.weight",
                                       {config_.max_position_embeddings, channels});
  token_type_embeddings_ =
      add_parameter(*this, embeddings + "token_type_embeddings.weight", {config_.type_vocab_size, channels});
  embeddings_norm_ = add_affine(*this, embeddings + "LayerNorm", {channels});
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("bert.encoder.layer.{}.", i);
    layers_.push_back(
        {.qkv = add_affine(*this, layer + "attention.self.qkv", {3 * channels, channels}),
         .attention_output = add_affine(*this, layer + "attention.output.dense", {channels, channels}),
         .attention_norm = add_affine(*this, layer + "attention.output.LayerNorm", {channels}),
         .intermediate = add_affine(*this, layer + "intermediate.dense", {wide, channels}),
         .output = add_affine(*this, layer + "output.dense", {channels, wide}),
         .output_norm = add_affine(*this, layer + "output.LayerNorm", {channels})});
  }
  pooler_ = add_affine(*this, "bert.pooler.dense", {channels, channels});
  classifier_ = add_affine(*this, "classifier", {options_.num_labels, channels});
}

BertClassifier::Hidden BertClassifier::embed(const data::Batch& batch) const {
  const at::Tensor sum = word_embedding(word_embeddings_, batch.input_ids, config_.pad_token_id) +
                         at::embedding(token_type_embeddings_, batch.token_type_ids) +
                         at::embedding(position_embeddings_, batch.position_ids);
  const at::Tensor norm = at::layer_norm(sum, {config_.hidden_size}, embeddings_norm_.weight,
                                         embeddings_norm_.bias, config_.layer_norm_eps);
  const at::Tensor hidden =
      kernels::dropout(norm, dropout_of(*this, config_.hidden_dropout_prob, batch.row_keys, 0));
  return {hidden, hidden.to(options_.compute_dtype)};
}

at::Tensor BertClassifier::logits(const data::Batch& batch) const {
  using kernels::linear;
  const at::Tensor first_tokens = batch.cu_seqlens.slice(0, 0, batch.num_sequences()).to(at::kLong);
  at::Tensor row_keys = batch.row_keys;
  Hidden hidden = embed(batch);
  uint32_t site = 1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const auto next_dropout = [&](double p) { return dropout_of(*this, p, row_keys, site++); };
    at::Tensor context = kernels::varlen_attention(
        linear(hidden.input, layer.qkv.weight, layer.qkv.bias), batch.cu_seqlens, batch.seqlens,
        config_.num_attention_heads, next_dropout(config_.attention_probs_dropout_prob));
    if (i + 1 == layers_.size()) {
      context = context.index_select(0, first_tokens);
      hidden.residual = hidden.residual.index_select(0, first_tokens);
      if (row_keys.defined()) row_keys = row_keys.index_select(0, first_tokens);
    }
    const auto add_norm = [&](const at::Tensor& x, const Affine& norm) {
      std::tie(hidden.residual, hidden.input) =
          kernels::dropout_add_layer_norm(x, hidden.residual, norm.weight, norm.bias, config_.layer_norm_eps,
                                          next_dropout(config_.hidden_dropout_prob));
    };
    add_norm(linear(context, layer.attention_output.weight, layer.attention_output.bias),
             layer.attention_norm);
    const at::Tensor wide = linear(hidden.input, layer.intermediate.weight, layer.intermediate.bias,
                                   fused_activation(config_.hidden_act));
    add_norm(linear(wide, layer.output.weight, layer.output.bias), layer.output_norm);
  }
  // B rows only: fp32 on CPUs; on GPUs autocast casts for at::linear, as it does for transformers.
  const at::Tensor pooled = at::tanh(linear(hidden.residual, pooler_.weight, pooler_.bias));
  const at::Tensor dropped =
      kernels::dropout(pooled, dropout_of(*this, classifier_dropout(), row_keys, site));
  return linear(dropped, classifier_.weight, classifier_.bias).to(at::kFloat);
}

Output BertClassifier::forward(const data::Batch& batch) {
  if (batch.num_sequences() == 0) return empty_output(batch);
  Output output{.loss_sum = {}, .logits = logits(batch)};
  if (batch.labels.defined()) {
    output.loss_sum = loss_sum(options_.problem_type, output.logits, batch.labels);
  }
  return output;
}

Output BertClassifier::empty_output(const data::Batch& batch) const {
  const at::Tensor zero = zero_of(parameters());
  return {.loss_sum = batch.labels.defined() ? zero : at::Tensor(),
          .logits = at::zeros({0, options_.num_labels}, zero.options())};
}

double BertClassifier::forward_flops(const data::Batch& batch) const {
  double tokens = 0, pairs = 0;
  for (const double length : batch.seqlens) tokens += length, pairs += length * length;
  return config_.forward_flops(static_cast<double>(batch.seqlens.size()), tokens, pairs, options_.num_labels);
}

std::optional<kernels::AttentionShape> BertClassifier::attention_shape() const {
  const int64_t heads = config_.num_attention_heads;
  return kernels::AttentionShape{.heads = heads,
                                 .kv_heads = heads,
                                 .head_dim = config_.hidden_size / heads,
                                 .is_causal = false,
                                 .dropout = config_.attention_probs_dropout_prob,
                                 .dtype = options_.compute_dtype};
}

bool BertClassifier::is_bias_or_norm(const std::string& parameter_name) const {
  return parameter_name.ends_with(".bias") || parameter_name.find("LayerNorm") != std::string::npos;
}

NamedTensors BertClassifier::hf_views(const std::vector<at::Tensor>& per_parameter) const {
  NamedTensors views;
  size_t i = 0;
  for (const auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    const at::Tensor& tensor = per_parameter.at(i++);
    const size_t qkv = name.find(kQkv);
    if (qkv == std::string::npos) {
      views.emplace_back(name, tensor);
      continue;
    }
    const auto parts = tensor.chunk(3);
    const char* const part_names[] = {".query.", ".key.", ".value."};
    for (size_t part = 0; part < parts.size(); ++part) {
      views.emplace_back(std::string(name).replace(qkv, std::strlen(kQkv), part_names[part]), parts[part]);
    }
  }
  return views;
}

std::vector<std::string> BertClassifier::aliases(const std::string& hf_name) const {
  std::vector<std::string> names{hf_name};
  const auto add_replaced = [&](std::string_view end, std::string_view old_end) {
    if (hf_name.ends_with(end))
      names.push_back(hf_name.substr(0, hf_name.size() - end.size()).append(old_end));
  };
  add_replaced("LayerNorm.weight", "LayerNorm.gamma");
  add_replaced("LayerNorm.bias", "LayerNorm.beta");
  for (size_t i = 0, n = names.size(); i < n; ++i) {
    if (names[i].starts_with(kPrefix)) names.push_back(names[i].substr(kPrefix.size()));
  }
  return names;
}

bool BertClassifier::is_ignored(const std::string& file_name) const {
  return file_name.ends_with("embeddings.position_ids") || file_name.ends_with("embeddings.token_type_ids");
}

void BertClassifier::initialize(const std::string& hf_name, const at::Tensor& weight,
                                at::Generator& generator) const {
  if (hf_name.ends_with(".bias")) {
    weight.zero_();
  } else if (hf_name.ends_with("LayerNorm.weight")) {
    weight.fill_(1);
  } else {
    weight.normal_(0, config_.initializer_range, generator);
    if (hf_name.ends_with("word_embeddings.weight") && config_.pad_token_id >= 0)
      weight[config_.pad_token_id].zero_();
  }
}

void BertClassifier::save_pretrained(const fs::path& directory) const {
  auto json = nlohmann::ordered_json::parse(config_.json);
  for (const char* stale : {"_name_or_path", "dtype", "num_labels", "id2label", "label2id"})
    json.erase(stale);
  json["architectures"] = {"BertForSequenceClassification"};
  json["torch_dtype"] = "float32";
  json["problem_type"] = spec::to_string(options_.problem_type);
  json["hidden_dropout_prob"] = config_.hidden_dropout_prob;
  json["attention_probs_dropout_prob"] = config_.attention_probs_dropout_prob;
  json["classifier_dropout"] = classifier_dropout();
  for (int64_t i = 0; i < options_.num_labels; ++i) {
    const std::string label = options_.label_names.empty() ? fmt::format("LABEL_{}", i)
                                                           : options_.label_names.at(static_cast<size_t>(i));
    json["id2label"][std::to_string(i)] = label;
    json["label2id"][label] = i;
  }
  save_hf_directory(directory, json.dump(2) + "\n", options_.tokenizer_files, hf_views(parameters()));
}

}  // namespace trainer::model
