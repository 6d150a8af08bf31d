#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "job/embedding_plan.h"
#include "job/recommender_config.h"
#include "spec/enums.h"

// A recommender's shape in numbers, and what its training costs.

namespace trainer {
namespace {

using spec::Architecture;
using Layer = RecommenderConfig::Layer;

std::vector<Layer> layers_of(int64_t in, const std::vector<int64_t>& widths) {
  std::vector<Layer> layers;
  for (const int64_t out : widths) {
    layers.emplace_back(in, out);
    in = out;
  }
  return layers;
}

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Vectors whose products dlrm takes.
int64_t num_vectors(const RecommenderConfig& c) {
  return c.num_features() + (c.dense.empty() ? 0 : 1);
}

}  // namespace

int64_t RecommenderConfig::pooled_columns() const {
  int64_t columns = 0;
  for (const SparseFeature& feature : features) columns += tables.at(static_cast<size_t>(feature.table)).dim;
  return columns;
}

int64_t RecommenderConfig::cross_columns() const {
  return pooled_columns() + (bottom_mlp.empty() ? 0 : bottom_mlp.back());
}

int64_t RecommenderConfig::top_columns() const {
  switch (architecture) {
    case Architecture::kDlrm:
      return (bottom_mlp.empty() ? 0 : bottom_mlp.back()) + num_vectors(*this) * (num_vectors(*this) - 1) / 2;
    case Architecture::kDcnv2:
      return cross_columns();
    case Architecture::kDeepfm:
    case Architecture::kWideDeep:
      return num_dense() + pooled_columns() - num_features();
  }
  return 0;
}

std::vector<Layer> RecommenderConfig::bottom_layers() const {
  return layers_of(num_dense(), bottom_mlp);
}

std::vector<Layer> RecommenderConfig::top_layers() const {
  return layers_of(top_columns(), top_mlp);
}

ParameterCount RecommenderConfig::weights() const {
  ParameterCount count;
  for (const auto& layers : {bottom_layers(), top_layers()}) {
    for (const auto& [in, out] : layers) count += {in * out, 1};
  }
  const int64_t n = cross_columns();
  for (int64_t i = 0; i < cross_layers; ++i) {
    count += cross_rank > 0 ? ParameterCount{2 * n * cross_rank, 2} : ParameterCount{n * n, 1};
  }
  if (has_first_order() && !dense.empty()) count += {num_dense(), 1};
  return count;
}

ParameterCount RecommenderConfig::biases() const {
  return {sum(bottom_mlp) + sum(top_mlp) + cross_layers * cross_columns(),
          static_cast<int64_t>(bottom_mlp.size() + top_mlp.size()) + cross_layers};
}

double RecommenderConfig::forward_flops(double records) const {
  int64_t products = weights().count;
  if (architecture == Architecture::kDlrm) {
    const int64_t n = num_vectors(*this);
    products += n * (n - 1) / 2 * tables.at(0).dim;
  } else if (architecture == Architecture::kDcnv2) {
    products += cross_layers * cross_columns();
  } else if (architecture == Architecture::kDeepfm) {
    products += pooled_columns() - num_features() + tables.at(0).dim - 1;  // squares
  }
  return 2 * records * static_cast<double>(products);
}

int64_t RecommenderConfig::table_parameters() const {
  int64_t count = 0;
  for (const TableConfig& table : tables) count += table.rows * table.dim;
  return count;
}

bool RecommenderConfig::knows_rows() const {
  return std::all_of(tables.begin(), tables.end(), [](const TableConfig& table) { return table.rows > 0; });
}

std::string RecommenderConfig::describe() const {
  std::string text = fmt::format("{}; {} dense and {} sparse features", spec::to_string(architecture),
                                 num_dense(), num_features());
  if (!bottom_mlp.empty()) text += fmt::format("; bottom {}-{}", num_dense(), fmt::join(bottom_mlp, "-"));
  if (cross_layers > 0) text += fmt::format("; {} cross layers of {}", cross_layers, cross_columns());
  if (cross_rank > 0) text += fmt::format(", rank {}", cross_rank);
  return text + fmt::format("; top {}-{}", top_columns(), fmt::join(top_mlp, "-"));
}

ModelCost recommender_cost(const Job& job, const RecommenderConfig& c) {
  const auto& train = job.spec.train;
  const int64_t b = train.precision == spec::Precision::kFp32 ? 4 : 2;
  const int64_t pooled = c.pooled_columns(), widest_in = std::max(c.top_columns(), c.cross_columns());
  const int64_t hidden = sum(c.bottom_mlp) + sum(c.top_mlp) + c.top_columns();
  // Kept for backward, a record: what goes into each layer, the dense features and embeddings as floats.
  const int64_t cross = c.cross_layers * ((c.cross_rank > 0 ? 2 : 1) * c.cross_columns() + c.cross_rank);
  const int64_t kept = 4 * (c.num_dense() + 2 * pooled) + b * (hidden + cross);
  // The embeddings' gradients stay until the step.
  const auto records = static_cast<double>(train.batch_size);
  const auto stashed = 4 * static_cast<double>(pooled * train.gradient_accumulation);
  const double scratch = 1.25 * 2 * static_cast<double>(b * widest_in);
  const double evaluated = job.evaluation_every < 0 ? 0
                                                    : static_cast<double>(job.spec.evaluation.batch_size) *
                                                          static_cast<double>(kept);
  return {.weights = c.weights(),
          .biases_and_norms = c.biases(),
          .matrix_parameters = c.weights().count,
          .forward_flops = c.forward_flops(1),
          .activation_bytes = records * (static_cast<double>(kept + 2 * b * widest_in) + stashed),
          .scratch_bytes = records * scratch,
          .evaluation_bytes = evaluated};
}

EmbeddingPlanOptions embedding_plan_options(const Job& job, const records::FeatureInfo& info) {
  const auto& parallel = job.spec.parallel;
  return {.world_size = job.world.size,
          .global_batch = job.global_batch,
          .bag_lengths = {},
          .weighted_bags = info.weighted,
          .memory_bytes = static_cast<int64_t>(parallel.embedding_memory_gb * (int64_t{1} << 30)),
          .optimizer = job.spec.model.recommender.embedding_optimizer.type,
          .compression = parallel.embedding_compression};
}

}  // namespace trainer
