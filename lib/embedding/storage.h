#pragma once

#include <ATen/core/Tensor.h>

#include "embedding/backends.h"

// What the backends share: the tables' memory.

namespace trainer::embedding {

struct TableStorage {
  at::Tensor weight;
  at::Tensor sum, exp_avg, exp_avg_sq, step;  // undefined where the optimizer has none; step is on the CPU
};

class StoredTables : public Tables {
 public:
  at::Tensor weight(int64_t table) override;
  std::vector<std::pair<std::string, at::Tensor>> state(int64_t table) override;
  int64_t state_bytes() const override;

 protected:
  // Leaves storage_ to its heir where `allocate` is false.
  StoredTables(TablesConfig config, at::Device device, bool allocate = true);

  // Table of feature f.
  size_t table_of(size_t feature) const { return static_cast<size_t>(config_.feature_tables[feature]); }
  // What a table needs, in memory from `make`, which is called with sizes and dtype.
  using Allocate = std::function<at::Tensor(at::IntArrayRef, at::ScalarType)>;
  TableStorage allocate(const Table& table, const Allocate& make) const;
  // Counts a step of every table. The number of a table's, 0 where it has no such state.
  void count_step();
  int64_t step_of(size_t table) const;

  const TablesConfig config_;
  const at::Device device_;
  const std::vector<int64_t> columns_;  // before each feature, and of all: [F + 1]
  std::vector<TableStorage> storage_;
};

at::ScalarType scalar_type(spec::TableDtype dtype);
// Whether a table's rows are rounded by random bits.
bool rounds_stochastically(const Table& table, const TableOptimizer& optimizer);
// Of a table's name, for the random bits of stochastic rounding.
uint32_t table_key(const std::string& name);
std::vector<int64_t> feature_columns(const TablesConfig& config);
// Zeros; large ones of a CPU are in huge pages where the system has them, since rows are read at random.
at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);
// Where the ids of each feature begin, and end: [F + 1]. Waits for a GPU.
std::vector<int64_t> feature_bounds(const Lookup& lookup, int64_t num_features);

}  // namespace trainer::embedding
