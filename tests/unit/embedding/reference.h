#pragma once

#include <torch/torch.h>

#include <set>

#include "embedding/backends.h"

// PyTorch's own arithmetic for the tables' tests: gradients of whole fp64 tables by autograd through embedding_bag, then the
// optimizer's formula on the rows that were touched.

namespace trainer::embedding::reference {

using at::Tensor;

// Random bags: of lengths below max_length, some empty.
inline Lookup random_lookup(const TablesConfig& config, int64_t batch, int64_t max_length, bool weighted) {
  std::vector<Tensor> ids;
  Lookup lookup;
  const auto features = static_cast<int64_t>(config.feature_tables.size());
  Tensor lengths = at::randint(0, max_length + 1, {features, batch}, at::kLong);
  for (int64_t f = 0; f < features; ++f) {
    const int64_t rows =
        config.tables[static_cast<size_t>(config.feature_tables[static_cast<size_t>(f)])].rows;
    if (rows == 0) lengths[f].zero_();
    // Low rows often, as clicks have them.
    const Tensor uniform = at::rand({lengths[f].sum().item<int64_t>()}, at::kDouble);
    ids.push_back((uniform.pow(3) * rows).floor().to(at::kLong));
  }
  lookup.ids = at::cat(ids);
  lookup.offsets = at::cat({at::zeros({1}, at::kLong), lengths.flatten().cumsum(0)});
  if (weighted) lookup.weights = at::randn({lookup.ids.numel()});
  lookup.batch = batch;
  return lookup;
}

// Feature f of the lookup, from fp64 tables.
inline Tensor pooled(const TablesConfig& config, const Lookup& lookup, const std::vector<Tensor>& tables) {
  std::vector<Tensor> columns;
  for (size_t f = 0; f < config.feature_tables.size(); ++f) {
    const Tensor& table = tables[static_cast<size_t>(config.feature_tables[f])];
    const Tensor offsets = lookup.offsets.narrow(0, static_cast<int64_t>(f) * lookup.batch, lookup.batch + 1);
    const int64_t begin = offsets[0].item<int64_t>(), count = offsets[-1].item<int64_t>() - begin;
    if (lookup.batch == 0 || table.size(0) == 0) {
      columns.push_back(at::zeros({lookup.batch, table.size(1)}, at::kDouble));
      continue;
    }
    std::optional<Tensor> weights;
    if (lookup.weights.defined()) weights = lookup.weights.narrow(0, begin, count).to(at::kDouble);
    columns.push_back(
        std::get<0>(at::embedding_bag(table, lookup.ids.narrow(0, begin, count), offsets - begin, false,
                                      /*sum*/ 0, false, weights, /*include_last_offset=*/true)));
  }
  return at::cat(columns, 1);
}

// The gradients of whole tables in fp64, and which rows were touched.
struct Gradient {
  Tensor dense;    // [rows, dim]
  Tensor touched;  // [rows, 1] bool
};
inline std::vector<Gradient> gradients(const TablesConfig& config, std::span<const Lookup> lookups,
                                       std::span<const Tensor> of_pooled) {
  std::vector<Tensor> leaves;
  std::vector<Gradient> result;
  for (const Table& table : config.tables) {
    leaves.push_back(at::zeros({table.rows, table.dim}, at::kDouble).requires_grad_());
    result.push_back(
        {at::zeros({table.rows, table.dim}, at::kDouble), at::zeros({table.rows, 1}, at::kBool)});
  }
  Tensor loss = at::zeros({}, at::kDouble).requires_grad_();
  for (size_t i = 0; i < lookups.size(); ++i) {
    loss = loss + (pooled(config, lookups[i], leaves) * of_pooled[i].to(at::kDouble)).sum();
    for (size_t f = 0; f < config.feature_tables.size(); ++f) {
      const auto first = static_cast<int64_t>(f) * lookups[i].batch;
      const int64_t begin = lookups[i].offsets[first].item<int64_t>();
      const int64_t end = lookups[i].offsets[first + lookups[i].batch].item<int64_t>();
      result[static_cast<size_t>(config.feature_tables[f])].touched.index_fill_(
          0, lookups[i].ids.narrow(0, begin, end - begin), true);
    }
  }
  loss.backward();
  for (size_t t = 0; t < leaves.size(); ++t) {
    if (leaves[t].grad().defined()) result[t].dense = leaves[t].grad();
  }
  return result;
}

// A table's tensors in fp64.
struct State {
  Tensor weight, sum, exp_avg, exp_avg_sq;
};
inline State state_of(Tables& tables, int64_t table) {
  State s{tables.weight(table).to(at::kDouble), {}, {}, {}};
  for (const auto& [name, tensor] : tables.state(table)) {
    const Tensor copy = tensor.to(at::kDouble, false, /*copy=*/true);
    if (name == "sum") s.sum = copy;
    if (name == "exp_avg") s.exp_avg = copy;
    if (name == "exp_avg_sq") s.exp_avg_sq = copy;
  }
  if (!s.weight.is_same(tables.weight(table)) && s.weight.data_ptr() == tables.weight(table).data_ptr()) {
    s.weight = s.weight.clone();
  }
  return s;
}

// State after step number `step`; of the columns that `columns` counts if the table is a shard.
inline State update(const State& before, const Gradient& gradient, const TableOptimizer& o, double lr,
                    int64_t step) {
  State s = before;
  Tensor g = gradient.dense;
  const Tensor& w = before.weight;
  if (o.type != spec::TableOptimizerType::kAdam) g = g + o.weight_decay * w;
  Tensor change;
  switch (o.type) {
    case spec::TableOptimizerType::kRowwiseAdagrad:
      s.sum = before.sum + g.square().mean(1);
      change = lr * g / (s.sum.unsqueeze(1).sqrt() + o.eps);
      break;
    case spec::TableOptimizerType::kAdagrad:
      s.sum = before.sum + g.square();
      change = lr * g / (s.sum.sqrt() + o.eps);
      break;
    case spec::TableOptimizerType::kSgd:
      change = lr * g;
      break;
    case spec::TableOptimizerType::kAdam: {
      s.exp_avg = o.beta1 * before.exp_avg + (1 - o.beta1) * g;
      s.exp_avg_sq = o.beta2 * before.exp_avg_sq + (1 - o.beta2) * g.square();
      const double t = static_cast<double>(step);
      const Tensor mean = s.exp_avg / (1 - std::pow(o.beta1, t)),
                   square = s.exp_avg_sq / (1 - std::pow(o.beta2, t));
      change = lr * (mean / (square.sqrt() + o.eps) + o.weight_decay * w);
      break;
    }
  }
  s.weight = w - change;
  const auto touched = [&](Tensor& now, const Tensor& then) {
    if (now.defined())
      now = at::where(now.dim() == 1 ? gradient.touched.squeeze(1) : gradient.touched, now, then);
  };
  touched(s.weight, before.weight);
  touched(s.sum, before.sum);
  touched(s.exp_avg, before.exp_avg);
  touched(s.exp_avg_sq, before.exp_avg_sq);
  return s;
}

// The largest difference, relative where numbers are above 1.
inline double difference(const Tensor& got, const Tensor& expected) {
  if (got.numel() == 0) return 0;
  const Tensor e = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - e).abs() / e.abs().clamp_min(1)).max().item<double>();
}

}  // namespace trainer::embedding::reference
