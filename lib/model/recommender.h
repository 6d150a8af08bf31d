#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "embedding/sharded.h"
#include "job/recommender_config.h"
#include "model/hf/weights.h"
#include "model/layers.h"
#include "records/feature_map.h"

namespace trainer::model {

// Probability of a click from dense features and the embeddings of sparse ones, by RecommenderConfig::architecture:
//
//   dlrm       Naumov et al. 2019, arXiv:1906.00091: an MLP over the dense features ends in one more vector; the top MLP takes
//              it and the dot products of all pairs of vectors
//   dcnv2      Wang et al. 2021, arXiv:2008.13535, stacked, over the same vectors side by side:
//              x_{l+1} = x_0 * (W x_l + b) + x_l, or W V for W; then the top MLP
//   deepfm     Guo et al. 2017, arXiv:1703.04247: a factorization machine (first-order weights, products of all pairs) plus
//              an MLP over dense features and embeddings
//   wide_deep  Cheng et al. 2016, arXiv:1606.07792: a linear model plus that MLP
//
// Layers end in ReLU but for the last. Parameters: bottom.<i>, top.<i> {weight [out, in], bias}, cross.<i> {weight, or w [N,
// rank] and v [rank, N], bias}, wide.weight [1, D], the dense features' first-order weights. Those of sparse features are the
// last columns of the tables. Tables are no parameters: see embeddings().
class Recommender : public HfModel {
 public:
  struct Options {
    at::ScalarType compute_dtype = at::kFloat;                 // of the layers between the first and the last
    std::shared_ptr<const records::FeatureMap> features = {};  // saved beside the weights; null: not
  };

  // Parameters are allocated, not initialized: see hf/weights.h. `embeddings` may be null where only weights are looked at.
  Recommender(RecommenderConfig config, Options options,
              std::unique_ptr<embedding::ShardedEmbedding> embeddings);

  // logits: [B]. A collective, with its backward, when tables are sharded.
  Output forward(const data::Batch& batch) override;
  double forward_flops(const data::Batch& batch) const override;
  std::optional<kernels::AttentionShape> attention_shape() const override { return std::nullopt; }
  embedding::ShardedEmbedding* embeddings() override { return embeddings_.get(); }
  bool is_bias_or_norm(const std::string& parameter_name) const override;
  // All but the tables, which lie on all ranks (embeddings()).
  void save_pretrained(const std::filesystem::path& directory) const override;

  NamedTensors hf_views(const std::vector<at::Tensor>& per_parameter) const override;
  // As DLRM's reference: normal, of variance 2 / (in + out), biases of 1 / out; those of cross layers 0.
  void initialize(const std::string& name, const at::Tensor& weight, at::Generator& generator) const override;
  std::vector<std::string> aliases(const std::string& name) const override { return {name}; }
  bool is_ignored(const std::string&) const override { return false; }
  std::string kind() const override { return "a recommender"; }
  std::string shape_hint() const override { return "config.json and the weights are not of one model"; }

  const RecommenderConfig& config() const { return config_; }

 private:
  struct Cross {
    at::Tensor v;  // undefined: a full matrix
    Affine out;
  };

  at::Tensor bottom(const at::Tensor& dense) const;                              // [B, D] -> [B, E] fp32
  at::Tensor top(at::Tensor x, const at::Tensor& row_keys) const;                // -> [B] fp32
  at::Tensor cross(const at::Tensor& x0) const;                                  // [B, N] -> [B, N]
  at::Tensor wide_and_deep(const at::Tensor& pooled, const data::Batch&) const;  // -> [B]
  at::Tensor logits(const data::Batch& batch);

  RecommenderConfig config_;
  Options options_;
  std::unique_ptr<embedding::ShardedEmbedding> embeddings_;
  std::vector<Affine> bottom_, top_;
  std::vector<Cross> cross_;
  at::Tensor wide_;
};

}  // namespace trainer::model
