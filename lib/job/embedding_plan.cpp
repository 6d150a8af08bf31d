#include "job/embedding_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <optional>

#include "core/error.h"
#include "core/format.h"
#include "core/math.h"
#include "spec/enums.h"

namespace trainer {
namespace {

using spec::Sharding;

constexpr int64_t kColumnStep = 4;       // shards begin at multiples of it
constexpr int64_t kMinAutoColumns = 16;  // narrower rows waste the cache lines they are read by
constexpr double kMemoryByteCost =
    0.1;                            // of a byte of a row that is read or written, in bytes of the network
constexpr double kRowPasses = 4;    // read in forward; weight and gradient read, weight written in the update
constexpr double kBalanced = 1.05;  // of the mean; no table is split for less
constexpr double kWorthSplitting = 0.97;    // of the load of the fullest rank
constexpr double kNoteworthyMemory = 0.25;  // of the budget: below it an uneven use of memory is no harm

int64_t state_bytes(spec::TableOptimizerType optimizer, int64_t rows, int64_t cols) {
  switch (optimizer) {
    case spec::TableOptimizerType::kRowwiseAdagrad:
      return rows * 4;
    case spec::TableOptimizerType::kAdagrad:
      return rows * cols * 4;
    case spec::TableOptimizerType::kAdam:
      return rows * cols * 8;
    case spec::TableOptimizerType::kSgd:
      return 0;
  }
  return 0;
}

// Sent by one rank and received by another, or read by one, in a step of all ranks.
struct Flow {
  double lookups = 0, id_bytes = 0, pooled_bytes = 0;  // as much as pooled comes back as gradients
};

class Planner {
 public:
  Planner(const std::vector<TableConfig>& tables, const EmbeddingPlanOptions& options)
      : tables_(tables), options_(options), world_(options.world_size) {}

  EmbeddingPlan plan() {
    shardings_.resize(tables_.size());
    for (size_t t = 0; t < tables_.size(); ++t) {
      check(tables_[t]);
      shardings_[t] = tables_[t].sharding;
      if (shardings_[t] == Sharding::kAuto) {
        shardings_[t] = is_small(tables_[t]) ? Sharding::kData : Sharding::kTable;
      }
    }
    set_means();
    Assignment best = assign();
    if (world_ > 1) split_largest(best);
    EmbeddingPlan plan{std::move(best.tables), {}};
    plan.ranks = loads(plan.tables);
    check_memory(plan);
    return plan;
  }

 private:
  struct Assignment {
    std::vector<TablePlacement> tables;
    std::vector<double> cost, memory;  // by rank
    double load = 0;                   // of the fullest rank
    double over_budget = 0;            // bytes, of all ranks
  };

  void check(const TableConfig& t) const {
    if (t.rows < 1 || t.dim < 1)
      fail<SpecError>("table '{}': {} rows of {} columns; expected at least 1 of each", t.name, t.rows,
                      t.dim);
    if (t.sharding == Sharding::kColumn && world_ > 1 && t.dim < 2 * kColumnStep) {
      fail<SpecError>(
          "table '{}': sharding 'column' of {} columns; each of two ranks needs at least {}: take 'table' or "
          "'row'",
          t.name, t.dim, kColumnStep);
    }
  }

  int64_t bytes(const TableConfig& t, int64_t rows, int64_t cols) const {
    return rows * cols * element_bytes(t.dtype) + state_bytes(options_.optimizer, rows, cols);
  }
  int64_t dense_gradient_bytes(const TableConfig& t) const { return t.rows * (t.dim + 1) * 4; }

  // Of a shard of `cols` columns and a part of the rows that gets `share` of the ids.
  Flow flow(const TableConfig& t, int64_t cols, double share) const {
    const double element = options_.compression == spec::GradientCompression::kNone ? 4 : 2;
    const auto batch = static_cast<double>(options_.global_batch);
    Flow flow;
    for (const int64_t f : t.features) {
      const double length = options_.bag_lengths.empty() ? 1 : options_.bag_lengths[static_cast<size_t>(f)];
      const double ids = batch * length * share;
      flow.lookups += ids;
      flow.id_bytes +=
          batch * 4 + ids * (options_.weighted_bags ? 8 : 4);  // lengths of the bags, ids, weights
      flow.pooled_bytes += batch * static_cast<double>(cols) * element;
    }
    return flow;
  }

  // Of the rank that holds such a shard; what the samples' ranks do for it is the same on all.
  double cost(const TableConfig& t, int64_t cols, double share) const {
    const Flow f = flow(t, cols, share);
    const double elsewhere = static_cast<double>(world_ - 1) / static_cast<double>(world_);
    const double row_bytes = static_cast<double>(cols * element_bytes(t.dtype)) * kRowPasses;
    return elsewhere * (f.id_bytes + 2 * f.pooled_bytes) + kMemoryByteCost * f.lookups * row_bytes;
  }

  // All-reducing the whole gradient is no more traffic than exchanging the ids, rows and gradients of a batch.
  bool is_small(const TableConfig& t) const {
    if (world_ == 1) return false;
    const auto w = static_cast<double>(world_);
    const Flow f = flow(t, t.dim, 1);
    return 2 * (w - 1) * static_cast<double>(dense_gradient_bytes(t)) <=
           (w - 1) / w * (f.id_bytes + 2 * f.pooled_bytes);
  }

  // Loads are told in parts of these means, of every table once: what splitting adds makes a load larger.
  void set_means() {
    double cost_sum = 0, memory_sum = 0;
    for (const TableConfig& t : tables_) {
      cost_sum += cost(t, t.dim, 1);
      memory_sum += static_cast<double>(bytes(t, t.rows, t.dim));
    }
    const auto w = static_cast<double>(world_);
    mean_cost_ = std::max(cost_sum / w, 1.0);
    mean_memory_ =
        std::max({memory_sum / w, kNoteworthyMemory * static_cast<double>(options_.memory_bytes), 1.0});
  }

  int64_t num_column_shards(const TableConfig& t, int64_t min_columns) const {
    return std::min(world_, t.dim / min_columns);
  }
  int64_t column_begin(const TableConfig& t, int64_t shards, int64_t i) const {
    return i == shards ? t.dim : t.dim / kColumnStep * i / shards * kColumnStep;
  }

  // ---- Greedy assignment: the largest first, to the rank that is then the least full ----

  struct Item {
    size_t table;
    int64_t col_begin, cols;
    double cost, memory;
  };

  Assignment assign() const {
    Assignment a;
    a.tables.resize(tables_.size());
    a.cost.assign(static_cast<size_t>(world_), 0);
    a.memory.assign(static_cast<size_t>(world_), 0);
    std::vector<Item> items;
    for (size_t i = 0; i < tables_.size(); ++i) {
      const TableConfig& t = tables_[i];
      TablePlacement& placement = a.tables[i];
      placement.sharding = shardings_[i];
      switch (shardings_[i]) {
        case Sharding::kData:
          for (int64_t r = 0; r < world_; ++r) {
            placement.shards.push_back({r, 0, t.rows, 0, t.dim});
            a.memory[static_cast<size_t>(r)] +=
                static_cast<double>(bytes(t, t.rows, t.dim) + dense_gradient_bytes(t));
          }
          break;
        case Sharding::kRow: {
          const int64_t block = ceil_div(t.rows, world_);
          for (int64_t begin = 0; begin < t.rows; begin += block) {
            const int64_t rows = std::min(block, t.rows - begin);
            placement.shards.push_back({begin / block, begin, rows, 0, t.dim});
            const auto r = static_cast<size_t>(begin / block);
            a.cost[r] += cost(t, t.dim, static_cast<double>(rows) / static_cast<double>(t.rows));
            a.memory[r] += static_cast<double>(bytes(t, rows, t.dim));
          }
          break;
        }
        default: {
          const bool split = shardings_[i] == Sharding::kColumn && world_ > 1;
          const bool chosen = t.sharding == Sharding::kAuto;
          const int64_t shards = split ? num_column_shards(t, chosen ? kMinAutoColumns : kColumnStep) : 1;
          for (int64_t k = 0; k < shards; ++k) {
            const int64_t begin = column_begin(t, shards, k), cols = column_begin(t, shards, k + 1) - begin;
            items.push_back({i, begin, cols, cost(t, cols, 1), static_cast<double>(bytes(t, t.rows, cols))});
          }
        }
      }
    }
    const auto size = [&](const Item& item) {
      return std::max(item.cost / mean_cost_, item.memory / mean_memory_);
    };
    std::stable_sort(items.begin(), items.end(),
                     [&](const Item& x, const Item& y) { return size(x) > size(y); });
    for (const Item& item : items) place(item, a);
    for (TablePlacement& placement : a.tables) {
      std::sort(placement.shards.begin(), placement.shards.end(),
                [](const TableShard& x, const TableShard& y) { return x.rank < y.rank; });
    }
    for (size_t r = 0; r < a.cost.size(); ++r) {
      a.load = std::max(a.load, load(a.cost[r], a.memory[r]));
      a.over_budget += over(a.memory[r]);
    }
    return a;
  }

  void place(const Item& item, Assignment& a) const {
    auto& shards = a.tables[item.table].shards;
    struct Fullness {
      double over, load, sum;
      auto operator<=>(const Fullness&) const = default;
    };
    std::optional<Fullness> least;
    size_t best = 0;
    for (size_t r = 0; r < a.cost.size(); ++r) {
      const bool taken = std::any_of(shards.begin(), shards.end(),
                                     [&](const TableShard& s) { return s.rank == static_cast<int64_t>(r); });
      if (taken) continue;
      const double c = a.cost[r] + item.cost, m = a.memory[r] + item.memory;
      const Fullness fullness{over(m), load(c, m), c / mean_cost_ + m / mean_memory_};
      if (least && !(fullness < *least)) continue;
      least = fullness;
      best = r;
    }
    a.cost[best] += item.cost;
    a.memory[best] += item.memory;
    shards.push_back({static_cast<int64_t>(best), 0, tables_[item.table].rows, item.col_begin, item.cols});
  }

  double load(double cost, double memory) const { return std::max(cost / mean_cost_, memory / mean_memory_); }
  double over(double memory) const {
    return options_.memory_bytes > 0 ? std::max(0.0, memory - static_cast<double>(options_.memory_bytes)) : 0;
  }

  // Splits tables of kAuto, the largest first, while that makes the fullest rank less full.
  void split_largest(Assignment& best) {
    std::vector<size_t> order;
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (tables_[t].sharding == Sharding::kAuto && shardings_[t] != Sharding::kData) order.push_back(t);
    }
    const auto size = [&](size_t t) {
      const TableConfig& c = tables_[t];
      return load(cost(c, c.dim, 1), static_cast<double>(bytes(c, c.rows, c.dim)));
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return size(x) > size(y); });
    for (const size_t t : order) {
      if (best.over_budget == 0 && best.load <= kBalanced) return;
      Sharding chosen = shardings_[t];
      for (const Sharding split : {Sharding::kColumn, Sharding::kRow}) {
        if (split == Sharding::kColumn && num_column_shards(tables_[t], kMinAutoColumns) < 2) continue;
        shardings_[t] = split;
        Assignment a = assign();
        const bool fits_better = a.over_budget < best.over_budget;
        const bool is_lighter = a.over_budget == best.over_budget && a.load < kWorthSplitting * best.load;
        if (!fits_better && !is_lighter) continue;
        best = std::move(a);
        chosen = split;
      }
      shardings_[t] = chosen;
    }
  }

  // ---- What ranks hold and exchange ----

  std::vector<RankLoad> loads(const std::vector<TablePlacement>& placements) const {
    std::vector<RankLoad> ranks(static_cast<size_t>(world_));
    const auto w = static_cast<double>(world_);
    for (size_t i = 0; i < tables_.size(); ++i) {
      const TableConfig& t = tables_[i];
      const bool is_data = placements[i].sharding == Sharding::kData;
      for (const TableShard& s : placements[i].shards) {
        RankLoad& owner = ranks[static_cast<size_t>(s.rank)];
        ++owner.tables;
        owner.weight_bytes += s.rows * s.cols * element_bytes(t.dtype);
        owner.state_bytes += state_bytes(options_.optimizer, s.rows, s.cols);
        Flow f = flow(t, s.cols, static_cast<double>(s.rows) / static_cast<double>(t.rows));
        if (is_data) {
          owner.lookups += f.lookups / w;
          if (world_ == 1) continue;
          owner.gradient_bytes += dense_gradient_bytes(t);
          owner.reduce_bytes += 4 * (w - 1) / w * static_cast<double>(dense_gradient_bytes(t));  // of a ring
          continue;
        }
        owner.lookups += f.lookups;
        // All but the owner's own part travels, once out of another rank and once into the owner or back.
        for (int64_t r = 0; r < world_; ++r) {
          const double parts = r == s.rank ? w - 1 : 1;
          RankLoad& rank = ranks[static_cast<size_t>(r)];
          rank.id_bytes += f.id_bytes * parts / w;
          rank.pooled_bytes += f.pooled_bytes * parts / w;
          rank.backward_bytes += f.pooled_bytes * parts / w;
        }
      }
    }
    return ranks;
  }

  void check_memory(const EmbeddingPlan& plan) const {
    if (options_.memory_bytes == 0) return;
    const auto fullest = std::max_element(
        plan.ranks.begin(), plan.ranks.end(),
        [](const RankLoad& x, const RankLoad& y) { return x.memory_bytes() < y.memory_bytes(); });
    if (fullest->memory_bytes() <= options_.memory_bytes) return;
    const int64_t rank = fullest - plan.ranks.begin();
    size_t largest = 0;
    int64_t most = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      for (const TableShard& s : plan.tables[t].shards) {
        if (s.rank != rank || bytes(tables_[t], s.rows, s.cols) <= most) continue;
        most = bytes(tables_[t], s.rows, s.cols);
        largest = t;
      }
    }
    int64_t all = 0;
    for (const RankLoad& r : plan.ranks) all += r.memory_bytes();
    fail<SpecError>(
        "the embedding tables need {} on rank {} (weights {}, their optimizer {}, dense gradients {}); {} "
        "are there for them "
        "(parallel.embedding_memory_gb, else what is free). The largest there is '{}', {} of it as sharding "
        "'{}' "
        "places it; all ranks together need {}: {}",
        binary_bytes(fullest->memory_bytes()), rank, binary_bytes(fullest->weight_bytes),
        binary_bytes(fullest->state_bytes), binary_bytes(fullest->gradient_bytes),
        binary_bytes(options_.memory_bytes), tables_[largest].name, binary_bytes(most),
        spec::to_string(plan.tables[largest].sharding), binary_bytes(all),
        all > options_.memory_bytes * world_
            ? "take more ranks, fewer rows, or a table_dtype of 2 bytes"
            : "let parallel.embedding and the tables' sharding be auto, or row");
  }

  const std::vector<TableConfig>& tables_;
  const EmbeddingPlanOptions& options_;
  const int64_t world_;
  std::vector<Sharding> shardings_;
  double mean_cost_ = 1, mean_memory_ = 1;
};

}  // namespace

int64_t element_bytes(spec::TableDtype dtype) {
  return dtype == spec::TableDtype::kFp32 ? 4 : 2;
}

EmbeddingPlan plan_embeddings(const std::vector<TableConfig>& tables, const EmbeddingPlanOptions& options) {
  return Planner(tables, options).plan();
}

}  // namespace trainer
