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
// FBGEMM's table-batched operators. Throws SpecError with fbgemm_fault().
std::unique_ptr<Tables> make_fbgemm_tables(TablesConfig config, at::Device device,
                                           const Placement& placement);
// Why FBGEMM cannot serve these tables on the device, or nothing.
std::string fbgemm_fault(const TablesConfig& config, at::Device device);

}  // namespace trainer::embedding
