#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
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
  std::vector<int64_t> features = {};               // numbers in RecommenderConfig::features; never empty
};

struct SparseFeature {
  std::string name;
  int64_t table = 0;   // number in RecommenderConfig::tables
  int64_t column = 0;  // of the pooled embeddings [B, pooled_columns()], its first one
};

// A recommender's shape: the spec with what the data says.
struct RecommenderConfig {
  spec::Architecture architecture = spec::Architecture::kDlrm;
  std::vector<std::string> dense = {};
  std::vector<SparseFeature> features = {};
  std::vector<TableConfig> tables = {};
  // Channels that come out of each layer, the last included; empty: no layers. The top ones end with 1.
  std::vector<int64_t> bottom_mlp = {}, top_mlp = {};
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
  int64_t cross_columns() const;  // that the cross layers and what follows them take
  int64_t top_columns() const;    // that top_mlp takes
  // Layers as {in, out}.
  using Layer = std::pair<int64_t, int64_t>;
  std::vector<Layer> bottom_layers() const;
  std::vector<Layer> top_layers() const;

  // Of the dense part.
  ParameterCount weights() const;
  ParameterCount biases() const;
  // Multiply-accumulates × 2 of a forward pass of `records`; those of the dense part alone, since sums of bags multiply
  // nothing.
  double forward_flops(double records) const;
  int64_t table_parameters() const;  // of tables whose rows are known
  bool knows_rows() const;

  std::string describe() const;  // for people

  // config.json of a saved recommender.
  static RecommenderConfig load(const std::filesystem::path& directory);
  std::string to_json() const;
};

class JobFaults;

// The job's model over these features: its spec, or model.pretrained's config.json, which must be of the same features.
// Adds every fault, by key.
RecommenderConfig load_recommender_config(const Job& job, const records::FeatureInfo& info,
                                          JobFaults& faults);
// Throws them as SpecError.
RecommenderConfig load_recommender_config(const Job& job, const records::FeatureInfo& info);

// What data.features and model.recommender alone tell, when no file is read: names as they are said, and 0 rows of tables that
// wait for a vocabulary. Nothing where patterns stand for columns, or columns are in the data.
std::optional<records::FeatureInfo> said_features(const spec::JobSpec& spec);

ModelCost recommender_cost(const Job& job, const RecommenderConfig& config);

}  // namespace trainer
