#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "core/math.h"
#include "embedding/backends.h"
#include "embedding/cpu/kernels.h"
#include "embedding/entries.h"
#include "embedding/storage.h"
#include "kernels/parallel.h"

namespace trainer::embedding {
namespace {

constexpr int64_t kBagsPerItem = 128;  // of forward: one thread's at a time

// Calls body(part) of each, on several threads.
template <class Part, class Body>
void run(std::vector<Part>& parts, const Body& body) {
  kernels::parallel_items(std::ssize(parts), [&](int64_t i) { body(parts[static_cast<size_t>(i)]); });
}

class NativeTables : public StoredTables {
 public:
  explicit NativeTables(TablesConfig config)
      : StoredTables(std::move(config), at::kCPU), kernels_(embedding_kernels()) {}

  at::Tensor forward(const Lookup& lookup) override {
    const int64_t batch = lookup.batch;
    at::Tensor out = at::empty({batch, columns_.back()}, at::kFloat);
    std::vector<PoolParams> params;
    for (size_t f = 0; f < config_.feature_tables.size(); ++f) {
      const size_t t = table_of(f);
      params.push_back({.rows = storage_[t].weight.const_data_ptr(),
                        .dim = config_.tables[t].dim,
                        .ids = lookup.ids.const_data_ptr<int64_t>(),
                        .offsets = lookup.offsets.const_data_ptr<int64_t>() + static_cast<int64_t>(f) * batch,
                        .weights = weights(lookup),
                        .num_bags = batch,
                        .out = out.mutable_data_ptr<float>() + columns_[f],
                        .out_stride = columns_.back()});
    }
    kernels::parallel_items(ceil_div(batch, kBagsPerItem), [&](int64_t item) {
      const int64_t begin = item * kBagsPerItem, end = std::min(batch, begin + kBagsPerItem);
      for (size_t f = 0; f < params.size(); ++f) {
        kernels(table_of(f)).pool(params[f], begin, end);
      }
    });
    return out;
  }

  void step(std::span<const Lookup> lookups, std::span<const at::Tensor> gradients, const at::Tensor& lr,
            const at::Tensor& grad_scale, const at::Tensor& found_inf, const RowSums* row_sums) override {
    if (found_inf.item<float>() == 1) return;
    count_step();
    bool weighted = false;
    for (const Lookup& lookup : lookups) weighted = weighted || lookup.weights.defined();
    const float learning_rate = lr.item<float>(), scale = 1 / grad_scale.item<float>();
    if (weighted) {
      step<WeightedEntry>(lookups, gradients, learning_rate, scale, row_sums);
    } else {
      step<Entry>(lookups, gradients, learning_rate, scale, row_sums);
    }
  }

  std::string backend() const override { return "native"; }

 private:
  static const float* weights(const Lookup& lookup) {
    return lookup.weights.defined() ? lookup.weights.const_data_ptr<float>() : nullptr;
  }
  const RowKernels& kernels(size_t table) const {
    switch (config_.tables[table].dtype) {
      case spec::TableDtype::kFp16:
        return kernels_.fp16;
      case spec::TableDtype::kBf16:
        return kernels_.bf16;
      case spec::TableDtype::kFp32:
        break;
    }
    return kernels_.fp32;
  }

  template <class Item>
  UpdateParams update_params(size_t t, float lr, float scale, const TableEntries<Item>& entries) const {
    const TableOptimizer& o = config_.optimizer;
    const Table& table = config_.tables[t];
    const TableStorage& s = storage_[t];
    const auto floats = [](const at::Tensor& x) {
      return x.defined() ? x.mutable_data_ptr<float>() : nullptr;
    };
    const int64_t step = step_of(t);
    const auto scale_of = [&](double beta) {
      return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(step))));
    };
    return {.rows = s.weight.mutable_data_ptr(),
            .dim = table.dim,
            .sum = floats(s.sum),
            .sum_dim = o.type == spec::TableOptimizerType::kAdagrad ? table.dim : 1,
            .exp_avg = floats(s.exp_avg),
            .exp_avg_sq = floats(s.exp_avg_sq),
            .slots = entries.slots.data(),
            .row_shift = entries.row_shift,
            .slot_shift = entries.slot_shift,
            .gradient_scale = scale,
            .lr = lr,
            .eps = static_cast<float>(o.eps),
            .weight_decay = static_cast<float>(o.weight_decay),
            .beta1 = static_cast<float>(o.beta1),
            .beta2 = static_cast<float>(o.beta2),
            .rest1 = static_cast<float>(1 - o.beta1),
            .rest2 = static_cast<float>(1 - o.beta2),
            .scale1 = scale_of(o.beta1),
            .scale2 = scale_of(o.beta2),
            .total_dim = table.dim,
            .stochastic = rounds_stochastically(table, o),
            .seed = o.seed,
            .table = table_key(table.name),
            .step = static_cast<uint32_t>(step),
            .row_begin = table.row_begin,
            .column_begin = table.column_begin};
  }
  RowUpdate row_update() const {
    switch (config_.optimizer.type) {
      case spec::TableOptimizerType::kAdagrad:
        return RowUpdate::kAdagrad;
      case spec::TableOptimizerType::kSgd:
        return RowUpdate::kSgd;
      case spec::TableOptimizerType::kAdam:
        return RowUpdate::kAdam;
      case spec::TableOptimizerType::kRowwiseAdagrad:
        break;
    }
    return RowUpdate::kRowwiseAdagrad;
  }

  template <class Item>
  void step(std::span<const Lookup> lookups, std::span<const at::Tensor> gradients, float lr, float scale,
            const RowSums* row_sums);

  const EmbeddingKernels& kernels_;
  EntryMemory memory_;
};

template <class Item>
struct Part {
  size_t table;
  std::span<Item> items;
  float* row_sums = nullptr;  // of its rows
  int64_t num_rows = 0;
};

template <class Item>
int64_t count_rows(std::span<const Item> items, int row_shift) {
  int64_t rows = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    rows += i == 0 || items[i].key >> row_shift != items[i - 1].key >> row_shift;
  }
  return rows;
}

template <class Item>
void NativeTables::step(std::span<const Lookup> lookups, std::span<const at::Tensor> gradients, float lr,
                        float scale, const RowSums* row_sums) {
  constexpr bool kWeighted = std::is_same_v<Item, WeightedEntry>;
  const auto entries = collect_entries<Item>(config_, lookups, gradients, memory_);
  std::vector<UpdateParams> params;
  for (size_t t = 0; t < entries.size(); ++t) params.push_back(update_params(t, lr, scale, entries[t]));

  const auto kind = static_cast<size_t>(row_update());
  const bool needs_sums = row_sums != nullptr && kind == static_cast<size_t>(RowUpdate::kRowwiseAdagrad);
  std::vector<Part<Item>> parts, shards;  // shards need other ranks' sums before the update
  for (size_t t = 0; t < entries.size(); ++t) {
    const auto shard =
        needs_sums ? std::ranges::find(row_sums->tables, static_cast<int64_t>(t)) - row_sums->tables.begin()
                   : 0;
    const bool is_shard = needs_sums && shard < std::ssize(row_sums->tables);
    if (is_shard) params[t].total_dim = row_sums->total_dims[static_cast<size_t>(shard)];
    for (const std::span<Item>& items : entries[t].parts) (is_shard ? shards : parts).push_back({t, items});
  }

  const auto scratch = [&](size_t table) {
    thread_local std::vector<float> memory;
    memory.resize(static_cast<size_t>(update_scratch(params[table].dim)));
    return memory.data();
  };
  const auto update = [&](const Part<Item>& part) {
    const auto& kernel = [&]() -> const auto& {
      if constexpr (kWeighted)
        return kernels(part.table).update_weighted[kind];
      else
        return kernels(part.table).update[kind];
    }
    ();
    kernel(params[part.table], part.items.data(), std::ssize(part.items), scratch(part.table), part.row_sums);
  };
  run(parts, [&](Part<Item>& part) {
    sort_part(entries[part.table], part.items);
    update(part);
  });
  if (!needs_sums) return;

  run(shards, [&](Part<Item>& part) {
    sort_part(entries[part.table], part.items);
    part.num_rows = count_rows<Item>(part.items, entries[part.table].row_shift);
  });
  std::vector<at::Tensor> sums;
  for (const int64_t table : row_sums->tables) {
    int64_t rows = 0;
    for (const Part<Item>& part : shards)
      rows += part.table == static_cast<size_t>(table) ? part.num_rows : 0;
    auto* next = sums.emplace_back(at::empty({rows}, at::kFloat)).mutable_data_ptr<float>();
    for (Part<Item>& part : shards) {
      if (part.table == static_cast<size_t>(table)) next = (part.row_sums = next) + part.num_rows;
    }
  }
  run(shards, [&](Part<Item>& part) {
    const RowKernels& k = kernels(part.table);
    const UpdateParams& p = params[part.table];
    const auto n = std::ssize(part.items);
    if constexpr (kWeighted) {
      k.sum_squares_weighted(p, part.items.data(), n, scratch(part.table), part.row_sums);
    } else {
      k.sum_squares(p, part.items.data(), n, scratch(part.table), part.row_sums);
    }
  });
  row_sums->add(sums);
  run(shards, update);
}

}  // namespace

std::unique_ptr<Tables> make_native_tables(TablesConfig config) {
  return std::make_unique<NativeTables>(std::move(config));
}

}  // namespace trainer::embedding
