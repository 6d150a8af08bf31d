#include "model/recommender.h"

#include <fmt/format.h>

#include <cmath>

#include "model/hf/directory.h"

// B records, D dense features, F sparse features, E channels of an embedding, N = cross_columns().

namespace trainer::model {

using kernels::linear;
using spec::Architecture;

Recommender::Recommender(RecommenderConfig config, Options options,
                         std::unique_ptr<embedding::ShardedEmbedding> embeddings)
    : config_(std::move(config)), options_(std::move(options)), embeddings_(std::move(embeddings)) {
  const auto add_mlp = [&](const char* name, const std::vector<RecommenderConfig::Layer>& layers) {
    std::vector<Affine> mlp;
    for (const auto& [in, out] : layers) {
      mlp.push_back(add_affine(*this, fmt::format("{}.{}", name, mlp.size()), {out, in}));
    }
    return mlp;
  };
  bottom_ = add_mlp("bottom", config_.bottom_layers());
  const int64_t n = config_.cross_columns(), rank = config_.cross_rank;
  for (int64_t i = 0; i < config_.cross_layers; ++i) {
    const std::string name = fmt::format("cross.{}", i);
    Cross& layer = cross_.emplace_back();
    if (rank > 0) {
      layer.out.weight = add_parameter(*this, name + ".w", {n, rank});
      layer.v = add_parameter(*this, name + ".v", {rank, n});
      layer.out.bias = add_parameter(*this, name + ".bias", {n});
    } else {
      layer.out = add_affine(*this, name, {n, n});
    }
  }
  top_ = add_mlp("top", config_.top_layers());
  if (config_.has_first_order() && config_.num_dense() > 0) {
    wide_ = add_parameter(*this, "wide.weight", {1, config_.num_dense()});
  }
}

// Dense features are counts and prices: the first layer takes them as they are, in fp32.
at::Tensor Recommender::bottom(const at::Tensor& dense) const {
  at::Tensor x = dense;
  for (const Affine& layer : bottom_) {
    x = linear(x, layer.weight, layer.bias, kernels::Activation::kRelu).to(options_.compute_dtype);
  }
  return x.to(at::kFloat);
}

at::Tensor Recommender::cross(const at::Tensor& x0) const {
  at::Tensor x = x0;
  for (const Cross& layer : cross_) {
    const at::Tensor in = layer.v.defined() ? linear(x, layer.v, at::Tensor()) : x;
    x = at::addcmul(x, x0, linear(in, layer.out.weight, layer.out.bias));
  }
  return x;
}

at::Tensor Recommender::top(at::Tensor x, const at::Tensor& row_keys) const {
  uint32_t site = 0;
  for (size_t i = 0; i + 1 < top_.size(); ++i) {
    x = linear(x.to(options_.compute_dtype), top_[i].weight, top_[i].bias, kernels::Activation::kRelu);
    x = kernels::dropout(x, dropout_of(*this, config_.dropout, row_keys, site++));
  }
  return linear(x.to(at::kFloat), top_.back().weight, top_.back().bias).to(at::kFloat).squeeze(1);
}

at::Tensor Recommender::wide_and_deep(const at::Tensor& pooled, const data::Batch& batch) const {
  std::vector<int64_t> sizes;
  for (const SparseFeature& feature : config_.features) {
    sizes.insert(sizes.end(), {config_.tables[static_cast<size_t>(feature.table)].dim - 1, 1});
  }
  const auto parts = pooled.split_with_sizes(sizes, 1);
  std::vector<at::Tensor> vectors, first_order;
  for (size_t i = 0; i < parts.size(); i += 2) {
    vectors.push_back(parts[i]);
    first_order.push_back(parts[i + 1]);
  }
  const at::Tensor embeddings = at::cat(vectors, 1);
  at::Tensor logits = at::cat(first_order, 1).sum(1);
  at::Tensor deep = embeddings;
  if (wide_.defined()) {
    logits = logits + linear(batch.records.dense, wide_, at::Tensor()).squeeze(1);
    deep = at::cat({batch.records.dense, embeddings}, 1);
  }
  if (config_.architecture == Architecture::kDeepfm) {
    // Of all pairs: (x + y + ...)^2 - x^2 - y^2 - ... is twice their products.
    const at::Tensor x = embeddings.view({embeddings.size(0), config_.num_features(), sizes[0]});
    logits = logits + 0.5 * (x.sum(1).square().sum(1) - embeddings.square().sum(1));
  }
  return logits + top(deep, batch.row_keys);
}

// Exchanges of embeddings go on beside the bottom MLP, in backward too: autograd takes the operations made last first.
at::Tensor Recommender::logits(const data::Batch& batch) {
  embeddings_->start(batch.records, batch.num_samples());
  const at::Tensor dense = bottom_.empty() ? at::Tensor() : bottom(batch.records.dense);
  const at::Tensor pooled = embeddings_->finish();
  switch (config_.architecture) {
    case Architecture::kDlrm:
      return top(kernels::dot_interaction(dense, pooled, config_.tables[0].dim, options_.compute_dtype),
                 batch.row_keys);
    case Architecture::kDcnv2: {
      const at::Tensor x0 = dense.defined() ? at::cat({dense, pooled}, 1) : pooled;
      return top(cross(x0.to(options_.compute_dtype)), batch.row_keys);
    }
    case Architecture::kDeepfm:
    case Architecture::kWideDeep:
      return wide_and_deep(pooled, batch);
  }
  return {};
}

Output Recommender::forward(const data::Batch& batch) {
  Output output{.loss_sum = {}, .logits = logits(batch)};
  if (batch.labels.defined()) {
    output.loss_sum =
        at::binary_cross_entropy_with_logits(output.logits, batch.labels, {}, {}, at::Reduction::Sum);
  }
  return output;
}

double Recommender::forward_flops(const data::Batch& batch) const {
  return config_.forward_flops(static_cast<double>(batch.num_samples()));
}

bool Recommender::is_bias_or_norm(const std::string& parameter_name) const {
  return parameter_name.ends_with(".bias");
}

NamedTensors Recommender::hf_views(const std::vector<at::Tensor>& per_parameter) const {
  NamedTensors views;
  for (const auto& parameter : named_parameters()) {
    views.emplace_back(parameter.key(), per_parameter.at(views.size()));
  }
  return views;
}

void Recommender::initialize(const std::string& name, const at::Tensor& weight,
                             at::Generator& generator) const {
  const auto out = static_cast<double>(weight.size(0));
  if (!name.ends_with(".bias")) {
    weight.normal_(0, std::sqrt(2 / (out + static_cast<double>(weight.size(1)))), generator);
  } else if (name.starts_with("cross.")) {
    weight.zero_();
  } else {
    weight.normal_(0, std::sqrt(1 / out), generator);
  }
}

void Recommender::save_pretrained(const std::filesystem::path& directory) const {
  save_hf_directory(directory, config_.to_json(), {}, hf_views(parameters()));
  if (options_.features) options_.features->save(directory);
}

}  // namespace trainer::model
