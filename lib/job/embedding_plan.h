#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/recommender_config.h"

// Where embedding tables lie. Of each table every sample's rank sends the ids to the ranks that hold a shard of it, and gets
// the pooled rows back:
//
//   table-wise     one rank holds it
//   row-wise       blocks of ceil(rows / ranks) rows; an id travels to one rank, pooled rows come from all and are summed
//   column-wise    a range of columns each; ids travel to all of these ranks, and each one's columns come back
//   data-parallel  every rank holds it; nothing travels but the dense gradient, once a step
//
// W ranks.

namespace trainer {

struct TableShard {
  int64_t rank = 0;
  int64_t row_begin = 0, rows = 0, col_begin = 0, cols = 0;
  bool operator==(const TableShard&) const = default;
};

struct TablePlacement {
  spec::Sharding sharding = spec::Sharding::kTable;  // never kAuto
  std::vector<TableShard>
      shards;  // by rank, at most one a rank, none empty; data-parallel: all of it on each
  bool operator==(const TablePlacement&) const = default;
};

// What a rank holds and what it exchanges in an optimizer step, where each rank has an equal part of the batch.
struct RankLoad {
  int64_t tables = 0;          // with a shard here
  int64_t weight_bytes = 0;    // in the tables' types
  int64_t state_bytes = 0;     // of their optimizer
  int64_t gradient_bytes = 0;  // dense ones of data-parallel tables
  double lookups = 0;          // rows read
  // Sent and received; what a rank gives itself is not counted.
  double id_bytes = 0;
  double pooled_bytes = 0;    // forward
  double backward_bytes = 0;  // gradients of the pooled rows
  double reduce_bytes = 0;    // dense gradients of data-parallel tables

  int64_t memory_bytes() const { return weight_bytes + state_bytes + gradient_bytes; }
  double traffic_bytes() const { return id_bytes + pooled_bytes + backward_bytes + reduce_bytes; }
};

struct EmbeddingPlan {
  std::vector<TablePlacement> tables;  // as in RecommenderConfig::tables
  std::vector<RankLoad> ranks;
};

struct EmbeddingPlanOptions {
  int64_t world_size = 1;
  int64_t global_batch = 0;         // samples an optimizer step, of all ranks
  std::vector<double> bag_lengths;  // mean ids of a feature's bag, by feature; empty: 1
  bool weighted_bags = false;
  int64_t memory_bytes = 0;  // of a rank, for tables and their optimizer's state; 0: not limited
  spec::TableOptimizerType optimizer = spec::TableOptimizerType::kRowwiseAdagrad;
  spec::GradientCompression compression =
      spec::GradientCompression::kNone;  // of pooled rows and their gradients
};

// Of a job's tables.
EmbeddingPlanOptions embedding_plan_options(const Job& job, const records::FeatureInfo& info);

// Places every table as its `sharding` says; kAuto: as balances memory and traffic best. A function of its arguments alone:
// all ranks must call it with the same. Throws SpecError where a table cannot be split as it says, or where the tables need
// more than memory_bytes.
EmbeddingPlan plan_embeddings(const std::vector<TableConfig>& tables, const EmbeddingPlanOptions& options);

// For people: tables in groups of equal ones, then what ranks hold and exchange. Several lines, each ends with a newline.
std::string describe_plan(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan,
                          const EmbeddingPlanOptions& options);

int64_t element_bytes(spec::TableDtype dtype);

}  // namespace trainer
