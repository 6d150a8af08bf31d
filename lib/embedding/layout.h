#pragma once

#include <cstdint>
#include <vector>

#include "job/embedding_plan.h"

// How the pooled columns of all features come together from what the ranks that hold shards ("owners") have looked up.

namespace trainer::embedding {

// One feature looked up in one shard.
struct Piece {
  int64_t feature = 0;
  int64_t shard = 0;  // number of the shard among its owner's
  int64_t row_begin = 0, rows = 0;
  int64_t total_rows = 0;  // of the whole table
  int64_t cols = 0;
  int64_t owner_column = 0;  // its first one of the owner's pooled columns
  int64_t column = 0;        // its first one of all pooled columns
  bool is_row_block = false;
};

// Columns that lie side by side both at the owner and in the whole.
struct Run {
  int64_t owner_column = 0, column = 0, cols = 0;
  bool is_added =
      false;  // to what owners before have pooled of other rows of the table; else these columns' first
};

struct Shard {
  int64_t table = 0;  // in RecommenderConfig::tables
  TableShard place;
};

struct Owner {
  std::vector<Shard> shards;
  std::vector<Piece> pieces;
  std::vector<Run> runs;
  int64_t columns = 0;
};

struct Layout {
  int64_t columns = 0;                // of all features, side by side in their order
  std::vector<int64_t> feature_dims;  // by feature
  std::vector<Owner> owners;          // by rank: what is exchanged
  Owner replicated;                   // data-parallel tables, looked up by the sample's rank itself
};

// One rank owns all, data-parallel tables among the rest.
Layout make_layout(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan);

}  // namespace trainer::embedding
