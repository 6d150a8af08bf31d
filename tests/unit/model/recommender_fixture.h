#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "embedding/sharded.h"
#include "job/embedding_plan.h"
#include "model/recommender.h"

// Small recommenders of every architecture on one process, batches of click records, and the same model written down anew
// with ATen's operations in fp64.

namespace trainer::model {

constexpr int64_t kDense = 5, kDim = 8;

// Features a, b, c, d of which a and c share a table; d's rows are averaged.
inline RecommenderConfig small_config(spec::Architecture architecture, int64_t num_dense = kDense) {
  RecommenderConfig c;
  c.architecture = architecture;
  for (int64_t i = 0; i < num_dense; ++i) c.dense.push_back(fmt::format("I{}", i));
  const int64_t dim = kDim + (c.has_first_order() ? 1 : 0);
  c.tables = {{.name = "shared", .rows = 20, .dim = dim, .features = {0, 2}},
              {.name = "b", .rows = 7, .dim = dim, .features = {1}},
              {.name = "d", .rows = 11, .dim = dim, .pooling = spec::Pooling::kMean, .features = {3}}};
  c.features = {{"a", 0, 0}, {"b", 1, dim}, {"c", 0, 2 * dim}, {"d", 2, 3 * dim}};
  if (!c.has_first_order() && num_dense > 0) c.bottom_mlp = {12, kDim};
  c.top_mlp = {10, 6, 1};
  if (architecture == spec::Architecture::kDcnv2) c.cross_layers = 2;
  return c;
}

struct Made {
  std::unique_ptr<dist::Communicator> communicator = dist::make_single_process();
  std::shared_ptr<Recommender> model;
};

inline Made make_recommender(const RecommenderConfig& config, at::ScalarType dtype = at::kFloat,
                             uint64_t seed = 3,
                             spec::TableOptimizerType optimizer = spec::TableOptimizerType::kRowwiseAdagrad) {
  Made made;
  EmbeddingPlanOptions planned;
  planned.global_batch = 16;
  const EmbeddingPlan plan = plan_embeddings(config.tables, planned);
  embedding::ShardedOptions options;
  options.seed = seed;
  options.optimizer.type = optimizer;
  made.model = std::make_shared<Recommender>(config, Recommender::Options{.compute_dtype = dtype},
                                             std::make_unique<embedding::ShardedEmbedding>(
                                                 config.tables, plan, options, *made.communicator, at::kCPU));
  load_weights(*made.model, nullptr, "", seed);
  const at::NoGradGuard no_grad;  // larger than a new model's, or all products are nearly 0
  for (const tensors::Slice& slice : made.model->embeddings()->slices()) {
    if (slice.name.ends_with(".weight")) slice.tensor.mul_(3);
  }
  return made;
}

// Bags of 0 to 3 ids.
inline data::Batch click_batch(const RecommenderConfig& config, int64_t size, uint64_t seed = 1,
                               bool weighted = false) {
  torch::manual_seed(seed);
  data::Batch batch;
  std::vector<int64_t> ids, offsets{0};
  for (const SparseFeature& feature : config.features) {
    const int64_t rows = config.tables[static_cast<size_t>(feature.table)].rows;
    for (int64_t i = 0; i < size; ++i) {
      const at::Tensor bag = at::randint(rows, {(i + feature.column) % 4}, at::kLong);
      ids.insert(ids.end(), bag.const_data_ptr<int64_t>(), bag.const_data_ptr<int64_t>() + bag.numel());
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
  }
  for (int64_t i = 0; i < size; ++i) batch.samples.push_back(i);
  batch.records.dense = torch::randn({size, config.num_dense()});
  batch.records.ids = at::tensor(ids, at::kLong);
  batch.records.offsets = at::tensor(offsets, at::kLong);
  if (weighted) batch.records.weights = torch::rand({static_cast<int64_t>(ids.size())}) + 0.5;
  batch.labels = at::randint(2, {size}, at::kFloat);
  batch.row_keys = at::arange(size, at::kLong) * 7919 + 13;
  return batch;
}

}  // namespace trainer::model
