#pragma once

#include "embedding/tables.h"

// The implementations behind make_tables(), which has checked the arguments.

namespace trainer::embedding {

struct TablesConfig {
  std::vector<Table> tables;
  std::vector<int64_t> feature_tables;
  TableOptimizer optimizer;
};

// CPU kernels of our own.
std::unique_ptr<Tables> make_native_tables(TablesConfig config);
// Compositions of ATen's operators on any device: the native backend of CUDA, and a second opinion for the tests.
std::unique_ptr<Tables> make_composed_tables(TablesConfig config, at::Device device);
// FBGEMM's table-batched operators. Throws SpecError, see make_tables().
std::unique_ptr<Tables> make_fbgemm_tables(TablesConfig config, at::Device device,
                                           const Placement& placement);

at::ScalarType scalar_type(spec::TableDtype dtype);
// Whether a table's rows are rounded by random bits.
bool rounds_stochastically(const Table& table, const TableOptimizer& optimizer);
// Of a table's name, for the random bits of stochastic rounding.
uint32_t table_key(const std::string& name);
// Columns before each feature, and of all: [F + 1].
std::vector<int64_t> feature_columns(const TablesConfig& config);
// Zeros; large ones of a CPU are in huge pages where the system has them, since rows are read at random.
at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);

}  // namespace trainer::embedding
