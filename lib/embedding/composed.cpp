#include <ATen/ATen.h>

#include <cmath>

#include "embedding/storage.h"
#include "kernels/philox.h"

// The tables by ATen's operators. Sums over duplicate ids are embedding_dense_backward's, which sorts: results don't depend on threads.

namespace trainer::embedding {
namespace {

using at::Tensor;

// The random bits of places (row, column) of a table, as kernels/cpu/simd.h's philox_group gives them: [rows, dim] int64. Words are the
// lower halves of int64.
Tensor random_bits(const Table& table, const TableOptimizer& optimizer, int64_t step, const Tensor& rows) {
  constexpr int64_t kWord = 0xFFFFFFFF;
  const Tensor place = (rows + table.row_begin).unsqueeze(1);
  const Tensor column = at::arange(table.column_begin, table.column_begin + table.dim, rows.options());
  const Tensor block = (at::floor_divide(column, 128) * 16 + at::remainder(column, 16)).unsqueeze(0);
  Tensor c0 = block.expand({rows.size(0), table.dim}), c1 = (place & kWord).expand_as(c0);
  Tensor c2 = ((at::bitwise_right_shift(place, 32) + static_cast<int64_t>(table_key(table.name))) & kWord)
                  .expand_as(c0);
  Tensor c3 = at::full_like(c0, step & kWord);
  auto key0 = static_cast<uint32_t>(optimizer.seed), key1 = static_cast<uint32_t>(optimizer.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Tensor p0 = c0 * int64_t{kernels::kPhiloxMultiplier0},
                 p1 = c2 * int64_t{kernels::kPhiloxMultiplier1};
    c0 = (at::bitwise_right_shift(p1, 32) & kWord) ^ c1 ^ int64_t { key0 };
    c1 = p1 & kWord;
    c2 = (at::bitwise_right_shift(p0, 32) & kWord) ^ c3 ^ int64_t { key1 };
    c3 = p0 & kWord;
    key0 += kernels::kPhiloxWeyl0;
    key1 += kernels::kPhiloxWeyl1;
  }
  const Tensor half = at::floor_divide(at::remainder(column, 128), 16).unsqueeze(0).expand_as(c0);
  const Tensor word =
      at::stack({c0, c1, c2, c3}).gather(0, at::floor_divide(half, 2).unsqueeze(0)).squeeze(0);
  return at::bitwise_right_shift(word, at::remainder(half, 2) * 16) & 0xFFFF;
}

// fp32 values moved to a neighbour in the dtype; cpu/rows.h has the same rule.
Tensor round_stochastically(const Tensor& value, at::ScalarType dtype, const Tensor& random) {
  const Tensor bits = value.contiguous().view(at::kInt);
  const Tensor draws = random.to(at::kInt);
  if (dtype == at::kBFloat16) {
    const Tensor rounded = (bits + draws) & static_cast<int32_t>(0xFFFF0000);
    return at::where(value.isfinite(), rounded.view(at::kFloat), value).to(dtype);
  }
  const Tensor magnitude = value.abs();
  const Tensor shift = at::where(magnitude < 0x1p-14, 0x1p-14, 0.0).to(at::kFloat);
  const Tensor shifted = (magnitude + shift).contiguous().view(at::kInt) + at::bitwise_right_shift(draws, 3);
  const Tensor rounded = (shifted & ~0x1FFF).view(at::kFloat) - shift;
  return at::where(value.isfinite(), at::copysign(rounded, value), value).to(dtype);
}

class ComposedTables : public StoredTables {
 public:
  ComposedTables(TablesConfig config, at::Device device) : StoredTables(std::move(config), device) {}

  Tensor forward(const Lookup& lookup) override {
    Tensor out = at::zeros({lookup.batch, columns_.back()}, at::TensorOptions().device(device_));
    const std::vector<int64_t> bounds = bounds_of(lookup);
    for (size_t f = 0; f < config_.feature_tables.size(); ++f) {
      const Bags bags = bags_of(lookup, bounds, f);
      const Tensor rows = storage_[table_of(f)].weight.index_select(0, bags.ids).to(at::kFloat);
      columns(out, f).index_add_(0, bags.samples, weighted(rows, bags));
    }
    return out;
  }

  void step(std::span<const Lookup> lookups, std::span<const Tensor> gradients, const Tensor& lr,
            const Tensor& grad_scale, const Tensor& found_inf, const RowSums* row_sums) override {
    if (found_inf.item<float>() == 1) return;
    count_step();
    std::vector<std::vector<int64_t>> bounds;
    for (const Lookup& lookup : lookups) bounds.push_back(bounds_of(lookup));
    std::vector<Touched> touched(config_.tables.size());
    for (size_t t = 0; t < touched.size(); ++t) {
      std::vector<Tensor> ids, rows;
      for (size_t l = 0; l < lookups.size(); ++l) {
        for (size_t f = 0; f < config_.feature_tables.size(); ++f) {
          if (table_of(f) != t) continue;
          const Bags bags = bags_of(lookups[l], bounds[l], f);
          ids.push_back(bags.ids);
          rows.push_back(weighted(columns(gradients[l], f).index_select(0, bags.samples), bags));
        }
      }
      if (ids.empty()) continue;
      const auto [unique, place, counts] =
          at::_unique2(at::cat(ids), /*sorted=*/true, /*return_inverse=*/true);
      Tensor g =
          at::embedding_dense_backward(at::cat(rows), place, unique.size(0), /*padding_idx=*/-1, false);
      touched[t] = {unique, g / grad_scale, {}};
      if (config_.optimizer.type != spec::TableOptimizerType::kAdam && config_.optimizer.weight_decay != 0) {
        touched[t].g +=
            config_.optimizer.weight_decay * storage_[t].weight.index_select(0, unique).to(at::kFloat);
      }
    }
    if (config_.optimizer.type == spec::TableOptimizerType::kRowwiseAdagrad) add_row_sums(touched, row_sums);
    for (size_t t = 0; t < touched.size(); ++t) {
      if (touched[t].rows.defined()) update(t, touched[t], lr);
    }
  }

  std::string backend() const override { return "native"; }

 private:
  // A feature's ids with the samples whose bags they are in.
  struct Bags {
    Tensor ids, samples, weights;
  };
  // The touched rows of a table in ascending order, their gradients and (row-wise Adagrad) the means of their squares.
  struct Touched {
    Tensor rows, g;  // [U], [U, dim]
    Tensor mean;     // [U]
  };

  std::vector<int64_t> bounds_of(const Lookup& lookup) const {
    return feature_bounds(lookup, static_cast<int64_t>(config_.feature_tables.size()));
  }
  static Bags bags_of(const Lookup& lookup, const std::vector<int64_t>& bounds, size_t f) {
    const int64_t begin = bounds[f], count = bounds[f + 1] - begin;
    const Tensor lengths =
        lookup.offsets.diff().narrow(0, static_cast<int64_t>(f) * lookup.batch, lookup.batch);
    return {lookup.ids.narrow(0, begin, count), at::repeat_interleave(lengths, std::optional(count)),
            lookup.weights.defined() ? lookup.weights.narrow(0, begin, count) : Tensor()};
  }
  static Tensor weighted(const Tensor& rows, const Bags& bags) {
    return bags.weights.defined() ? rows * bags.weights.unsqueeze(1) : rows;
  }
  Tensor columns(const Tensor& pooled, size_t f) const {
    return pooled.narrow(1, columns_[f], columns_[f + 1] - columns_[f]);
  }

  void add_row_sums(std::vector<Touched>& touched, const RowSums* row_sums) const {
    for (Touched& table : touched) {
      if (table.rows.defined()) table.mean = table.g.square().mean(1);
    }
    if (row_sums == nullptr) return;
    std::vector<Tensor> sums;
    for (const int64_t table : row_sums->tables) {
      const Touched& rows = touched[static_cast<size_t>(table)];
      sums.push_back(rows.rows.defined() ? rows.g.square().sum(1)
                                         : at::zeros({0}, at::TensorOptions().device(device_)));
    }
    row_sums->add(sums);
    for (size_t i = 0; i < sums.size(); ++i) {
      touched[static_cast<size_t>(row_sums->tables[i])].mean = sums[i] / row_sums->total_dims[i];
    }
  }

  void update(size_t t, const Touched& touched, const Tensor& lr) {
    const TableOptimizer& o = config_.optimizer;
    const TableStorage& s = storage_[t];
    const Tensor &rows = touched.rows, &g = touched.g;
    const auto add = [&](const Tensor& to, double decay, const Tensor& value) {
      const Tensor sum = to.index_select(0, rows) * decay + value;
      to.index_copy_(0, rows, sum);
      return sum;
    };
    const Tensor w = s.weight.index_select(0, rows).to(at::kFloat);
    Tensor change;
    switch (o.type) {
      case spec::TableOptimizerType::kRowwiseAdagrad:
        change = g / (add(s.sum, 1, touched.mean).sqrt() + o.eps).unsqueeze(1);
        break;
      case spec::TableOptimizerType::kAdagrad:
        change = g / (add(s.sum, 1, g.square()).sqrt() + o.eps);
        break;
      case spec::TableOptimizerType::kSgd:
        change = g;
        break;
      case spec::TableOptimizerType::kAdam: {
        const auto number = static_cast<double>(step_of(t));
        const Tensor mean = add(s.exp_avg, o.beta1, (1 - o.beta1) * g) / (1 - std::pow(o.beta1, number));
        const Tensor square =
            add(s.exp_avg_sq, o.beta2, (1 - o.beta2) * g.square()) / (1 - std::pow(o.beta2, number));
        change = mean / (square.sqrt() + o.eps) + o.weight_decay * w;
        break;
      }
    }
    const Tensor value = w - lr * change;
    const Table& table = config_.tables[t];
    const at::ScalarType dtype = scalar_type(table.dtype);
    s.weight.index_copy_(0, rows,
                         rounds_stochastically(table, o)
                             ? round_stochastically(value, dtype, random_bits(table, o, step_of(t), rows))
                             : value.to(dtype));
  }
};

}  // namespace

std::unique_ptr<Tables> make_composed_tables(TablesConfig config, at::Device device) {
  return std::make_unique<ComposedTables>(std::move(config), device);
}

}  // namespace trainer::embedding
