#include "embedding/layout.h"

#include <algorithm>

namespace trainer::embedding {
namespace {

// Pieces by feature, so that one owner of everything has the columns of the whole.
void lay_out(Owner& owner, const std::vector<TableConfig>& tables,
             const std::vector<TablePlacement>& placements, const std::vector<int64_t>& columns) {
  for (size_t s = 0; s < owner.shards.size(); ++s) {
    const auto table = static_cast<size_t>(owner.shards[s].table);
    const TableShard& place = owner.shards[s].place;
    for (const int64_t f : tables[table].features) {
      Piece piece;
      piece.feature = f;
      piece.shard = static_cast<int64_t>(s);
      piece.row_begin = place.row_begin;
      piece.rows = place.rows;
      piece.total_rows = tables[table].rows;
      piece.cols = place.cols;
      piece.column = columns[static_cast<size_t>(f)] + place.col_begin;
      piece.is_row_block =
          placements[table].sharding == spec::Sharding::kRow && place.rows < tables[table].rows;
      owner.pieces.push_back(piece);
    }
  }
  std::sort(owner.pieces.begin(), owner.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.feature < b.feature; });
  for (Piece& piece : owner.pieces) {
    piece.owner_column = owner.columns;
    owner.columns += piece.cols;
    const bool is_added = piece.row_begin > 0;
    if (!owner.runs.empty() && owner.runs.back().column + owner.runs.back().cols == piece.column &&
        owner.runs.back().is_added == is_added) {
      owner.runs.back().cols += piece.cols;
    } else {
      owner.runs.push_back({piece.owner_column, piece.column, piece.cols, is_added});
    }
  }
}

}  // namespace

Layout make_layout(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan) {
  Layout layout;
  for (const TableConfig& t : tables) {
    for (const int64_t f : t.features) {
      if (f >= static_cast<int64_t>(layout.feature_dims.size()))
        layout.feature_dims.resize(static_cast<size_t>(f) + 1);
      layout.feature_dims[static_cast<size_t>(f)] = t.dim;
    }
  }
  std::vector<int64_t> columns;
  for (const int64_t dim : layout.feature_dims) {
    columns.push_back(layout.columns);
    layout.columns += dim;
  }
  const bool is_alone = plan.ranks.size() == 1;
  layout.owners.resize(plan.ranks.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    const TablePlacement& placement = plan.tables[t];
    if (placement.sharding == spec::Sharding::kData && !is_alone) {
      layout.replicated.shards.push_back({table, placement.shards.front()});
      continue;
    }
    for (const TableShard& place : placement.shards)
      layout.owners[static_cast<size_t>(place.rank)].shards.push_back({table, place});
  }
  for (Owner& owner : layout.owners) lay_out(owner, tables, plan.tables, columns);
  lay_out(layout.replicated, tables, plan.tables, columns);
  return layout;
}

}  // namespace trainer::embedding
