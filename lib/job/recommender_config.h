#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/estimate.h"
#include "job/job.h"
#include "records/feature_info.h"

// B records, D dense features, F sparse features.

namespace trainer {

struct TableConfig {
  std::string name;
  int64_t rows = 0;  // 0: not known before the vocabulary is fitted
  // With the first-order weight of a row, its last column, where the architecture has one.
  int64_t dim = 0;
  spec::Pooling pooling = spec::Pooling::kSum;
  spec::TableDtype dtype = spec::TableDtype::kFp32;
  spec::Sharding sharding = spec::Sharding::kAuto;  // kAuto: as the plan finds best
  std::vector<int64_t> features;                    // numbers in RecommenderConfig::features; never empty
};

struct SparseFeature {
  std::string name;
  int64_t table = 0;   // number in RecommenderConfig::tables
  int64_t column = 0;  // of the pooled embeddings [B, pooled_columns()], its first one
};

// A recommender's shape: the spec with what the data says.
struct RecommenderConfig {
  spec::Architecture architecture = spec::Architecture::kDlrm;
  std::vector<std::string> dense;
  std::vector<SparseFeature> features;
  std::vector<TableConfig> tables;
  std::vector<int64_t> bottom_mlp;  // channels that come out of each layer, the last included; empty: no layers
  std::vector<int64_t> top_mlp;     // ends with 1
  int64_t cross_layers = 0;
  int64_t cross_rank = 0;  // 0: full matrices
  double dropout = 0;

  // A row's last column is its first-order weight (deepfm, wide_deep): a table of its own would double the ids that travel
  // and the rows that are looked up.
  bool has_first_order() const {
    return architecture == spec::Architecture::kDeepfm || architecture == spec::Architecture::kWideDeep;
  }
  int64_t num_dense() const { return static_cast<int64_t>(dense.size()); }
  int64_t num_features() const { return static_cast<int64_t>(features.size()); }
  int64_t pooled_columns() const;
};

}  // namespace trainer
