#include "model/bert.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/embedding.h"
#include "spec/enums.h"

// B sequences, N tokens in all of them, C channels, I intermediate channels, L labels.

namespace trainer::model {
namespace {

namespace fs = std::filesystem;
using spec::ProblemType;

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

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fail<CheckpointError>("{}: cannot write: {}", path.string(), std::strerror(errno));
}

}  // namespace

BertClassifier::BertClassifier(BertConfig config, Options options)
    : config_(std::move(config)), options_(std::move(options)) {
  const int64_t channels = config_.hidden_size, wide = config_.intermediate_size;
  const std::string embeddings = "bert.embeddings.";
  word_embeddings_ = parameter(embeddings + "word_embeddings.weight", {config_.vocab_size, channels});
  position_embeddings_ =
      parameter(embeddings + "position_embeddings.weight", {config_.max_position_embeddings, channels});
  token_type_embeddings_ =
      parameter(embeddings + "token_type_embeddings.weight", {config_.type_vocab_size, channels});
  embeddings_norm_ = affine(embeddings + "LayerNorm", {channels});
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("bert.encoder.layer.{}.", i);
    layers_.push_back({.qkv = affine(layer + "attention.self.qkv", {3 * channels, channels}),
                       .attention_output = affine(layer + "attention.output.dense", {channels, channels}),
                       .attention_norm = affine(layer + "attention.output.LayerNorm", {channels}),
                       .intermediate = affine(layer + "intermediate.dense", {wide, channels}),
                       .output = affine(layer + "output.dense", {channels, wide}),
                       .output_norm = affine(layer + "output.LayerNorm", {channels})});
  }
  pooler_ = affine("bert.pooler.dense", {channels, channels});
  classifier_ = affine("classifier", {options_.num_labels, channels});
}

at::Tensor BertClassifier::parameter(const std::string& path, at::IntArrayRef shape) {
  torch::nn::Module* module = this;
  size_t start = 0;
  for (size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    const std::string name = path.substr(start, dot - start);
    const auto children = module->named_children();
    const auto* child = children.find(name);
    module = child != nullptr ? child->get()
                              : module->register_module(name, std::make_shared<torch::nn::Module>()).get();
  }
  return module->register_parameter(path.substr(start), at::empty(shape));
}

BertClassifier::Affine BertClassifier::affine(const std::string& path, at::IntArrayRef weight_shape) {
  at::Tensor weight = parameter(path + ".weight", weight_shape);
  return {weight, parameter(path + ".bias", {weight_shape[0]})};
}

kernels::Dropout BertClassifier::dropout(double p, const at::Tensor& row_keys, uint32_t site) const {
  if (!is_training() || p == 0) return {};
  return {.p = p, .row_keys = row_keys, .site = site};
}

BertClassifier::Hidden BertClassifier::embed(const data::TextBatch& batch) const {
  const at::Tensor sum = word_embedding(word_embeddings_, batch.input_ids, config_.pad_token_id) +
                         at::embedding(token_type_embeddings_, batch.token_type_ids) +
                         at::embedding(position_embeddings_, batch.position_ids);
  const at::Tensor norm = at::layer_norm(sum, {config_.hidden_size}, embeddings_norm_.weight,
                                         embeddings_norm_.bias, config_.layer_norm_eps);
  const at::Tensor hidden = kernels::dropout(norm, dropout(config_.hidden_dropout_prob, batch.row_keys, 0));
  return {hidden, hidden.to(options_.compute_dtype)};
}

at::Tensor BertClassifier::logits(const data::TextBatch& batch) const {
  using kernels::linear;
  const bool is_gelu = config_.hidden_act == Activation::kGelu;
  const auto activation = is_gelu ? kernels::Activation::kGelu : kernels::Activation::kNone;
  const at::Tensor first_tokens = batch.cu_seqlens.slice(0, 0, batch.num_sequences()).to(at::kLong);
  at::Tensor row_keys = batch.row_keys;
  Hidden hidden = embed(batch);
  uint32_t site = 1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const auto next_dropout = [&](double p) { return dropout(p, row_keys, site++); };
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
    at::Tensor wide = linear(hidden.input, layer.intermediate.weight, layer.intermediate.bias, activation);
    if (!is_gelu) wide = config_.hidden_act == Activation::kRelu ? at::relu(wide) : at::gelu(wide, "tanh");
    add_norm(linear(wide, layer.output.weight, layer.output.bias), layer.output_norm);
  }
  // B rows only: fp32 on CPUs; on GPUs autocast casts for at::linear, as it does for transformers.
  const at::Tensor pooled = at::tanh(linear(hidden.residual, pooler_.weight, pooler_.bias));
  const at::Tensor dropped = kernels::dropout(pooled, dropout(classifier_dropout(), row_keys, site));
  return linear(dropped, classifier_.weight, classifier_.bias).to(at::kFloat);
}

Output BertClassifier::forward(const data::TextBatch& batch) {
  if (batch.num_sequences() == 0) return empty_output(batch);
  Output output{.loss_sum = {}, .logits = logits(batch)};
  if (batch.labels.defined()) {
    output.loss_sum = loss_sum(options_.problem_type, output.logits, batch.labels);
  }
  return output;
}

Output BertClassifier::empty_output(const data::TextBatch& batch) const {
  // Sums of no elements: zero even where a parameter is inf, and its gradient is zeros.
  at::Tensor zero = at::zeros({}, classifier_.bias.options().requires_grad(false));
  for (const at::Tensor& parameter : parameters()) zero = zero + parameter.slice(0, 0, 0).sum();
  return {.loss_sum = batch.labels.defined() ? zero : at::Tensor(),
          .logits = at::zeros({0, options_.num_labels}, zero.options())};
}

double BertClassifier::forward_flops(const std::vector<int32_t>& seqlens) const {
  double tokens = 0, pairs = 0;
  for (const double length : seqlens) tokens += length, pairs += length * length;
  return config_.forward_flops(static_cast<double>(seqlens.size()), tokens, pairs, options_.num_labels);
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

void BertClassifier::save_pretrained(const fs::path& directory) const {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail<CheckpointError>("{}: cannot create: {}", directory.string(), error.message());

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
  write_text(directory / "config.json", json.dump(2) + "\n");
  for (const auto& [name, contents] : options_.tokenizer_files) write_text(directory / name, contents);
  write_safetensors(directory / "model.safetensors", hf_views(parameters()));
}

}  // namespace trainer::model
