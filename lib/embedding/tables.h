#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spec/job_spec.h"

// The embedding tables of one rank, and their optimizer. A table is not a parameter with a gradient: the caller keeps the
// gradients of what forward() gave, over all micro-batches of a step, and step() then changes every touched row once.
//
// T tables; F features, each looked up in one table, a table serves any number of them. B samples, n ids of all their bags;
// D_f columns of feature f, D their sum.

namespace trainer::embedding {

// What this rank holds of a table: all of it, or a block of rows and columns.
struct Table {
  std::string name;  // of the whole table
  int64_t rows = 0, dim = 0;
  spec::TableDtype dtype = spec::TableDtype::kFp32;
  // Where the block begins in the whole table. Stochastic rounding draws its bits by places in the whole table, so that they
  // are the same for any sharding.
  int64_t row_begin = 0, column_begin = 0;
};

// The bags of B samples, feature-major: all bags of feature 0, then of 1, ... Tensors are contiguous, on the tables' device.
struct Lookup {
  at::Tensor ids;  // [n] int64, rows of the feature's table here; whoever makes them has checked their range
  at::Tensor offsets;  // [F B + 1] int64: where bags begin in ids, from 0 to n
  at::Tensor weights;  // [n] fp32, or undefined: 1
  int64_t batch = 0;   // B
};

// Of g, the sum of a row's gradients, and w, the row; only touched rows change, as FBGEMM's exact optimizers do:
//   rowwise_adagrad  g += weight_decay w; sum += mean of g^2 over the row's columns; w -= lr g / (sqrt(sum) + eps)
//   adagrad          the same with a sum for each column
//   sgd              g += weight_decay w; w -= lr g
//   adam             w -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w), t counts steps
// fp16 and bf16 rows are updated in fp32, then rounded to nearest or stochastically.
struct TableOptimizer {
  spec::TableOptimizerType type = spec::TableOptimizerType::kRowwiseAdagrad;
  double eps = 1e-8, beta1 = 0.9, beta2 = 0.999, weight_decay = 0;
  bool stochastic_rounding = true;
  uint64_t seed = 0;
};

// For tables that are a range of columns of a table under row-wise Adagrad, whose mean is over all columns of the row. Any
// other optimizer ignores it.
struct RowSums {
  std::vector<int64_t> tables;
  std::vector<int64_t> total_dims;  // columns of those whole tables
  // Called once in each step that changes anything: a [touched rows] fp32 tensor for each of these tables, sums of squares of
  // this rank's columns, in an order that follows from the table's ids alone. It adds other ranks' in place.
  std::function<void(std::span<at::Tensor>)> add;
};

class Tables {
 public:
  virtual ~Tables() = default;

  // [B, D] fp32: the sum of the (weighted) rows of each bag, zero for an empty one, features side by side. No autograd.
  virtual at::Tensor forward(const Lookup& lookup) = 0;

  // One optimizer step from the gradients of what forward() gave, exact over duplicate ids within and between lookups; it
  // counts as a step even where there are none. lr, grad_scale, found_inf are [] fp32: gradients are divided by grad_scale; nothing at all
  // changes where found_inf is 1. row_sums may be null.
  virtual void step(std::span<const Lookup> lookups,
                    std::span<const at::Tensor> gradients /* [B, D] fp32 each */, const at::Tensor& lr,
                    const at::Tensor& grad_scale, const at::Tensor& found_inf, const RowSums* row_sums) = 0;

  // [rows, dim] in the table's dtype: the storage itself, zero at first, to initialise, save and load.
  virtual at::Tensor weight(int64_t table) = 0;
  // The optimizer's state of a table by name, the storage itself, zero at first: "sum" [rows] (row-wise Adagrad) or [rows, dim]
  // (Adagrad), "exp_avg" and "exp_avg_sq" [rows, dim] (Adam), "step" [] int64 (Adam, and stochastic rounding).
  virtual std::vector<std::pair<std::string, at::Tensor>> state(int64_t table) = 0;
  // Of all tables' state.
  virtual int64_t state_bytes() const = 0;
  // "native" or "fbgemm", for the log.
  virtual std::string backend() const = 0;
};

// Where rows live on a GPU (FBGEMM only): in its memory, in the host's, or in the host's with a cache of this part of the rows.
struct Placement {
  spec::EmbeddingMemory memory = spec::EmbeddingMemory::kDevice;
  double cache_load_factor = 0.2;
};

// Table feature_tables[f] serves feature f. `auto` is native on a CPU, where it is the faster one (BENCHMARKS.md), and on a GPU
// fbgemm where its package is found. Throws SpecError where fbgemm is asked for and missing or cannot do what is asked.
std::unique_ptr<Tables> make_tables(spec::EmbeddingBackend backend, std::vector<Table> tables,
                                    std::vector<int64_t> feature_tables, const TableOptimizer& optimizer,
                                    at::Device device, const Placement& placement = {});

// Several lookups of F features as one of all their samples, in order. One lookup is returned as it is.
Lookup concat_lookups(std::span<const Lookup> lookups, int64_t num_features);

}  // namespace trainer::embedding
