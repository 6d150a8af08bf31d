#include "embedding/tables.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "embedding/backends.h"

namespace trainer::embedding {

at::ScalarType scalar_type(spec::TableDtype dtype) {
  switch (dtype) {
    case spec::TableDtype::kFp16:
      return at::kHalf;
    case spec::TableDtype::kBf16:
      return at::kBFloat16;
    case spec::TableDtype::kFp32:
      break;
  }
  return at::kFloat;
}

bool rounds_stochastically(const Table& table, const TableOptimizer& optimizer) {
  return optimizer.stochastic_rounding && table.dtype != spec::TableDtype::kFp32;
}

uint32_t table_key(const std::string& name) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return hash;
}

std::vector<int64_t> feature_columns(const TablesConfig& config) {
  std::vector<int64_t> begins{0};
  for (const int64_t table : config.feature_tables) {
    begins.push_back(begins.back() + config.tables[static_cast<size_t>(table)].dim);
  }
  return begins;
}

at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  if (!device.is_cpu() || bytes < 4 * kHugePage) return at::zeros(sizes, options);
  // Aligned, so that all of it can be in huge pages. The system clears pages when they are touched.
  const size_t size = bytes + kHugePage;
  void* memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail<OutOfMemoryError>("embedding tables: cannot map {} bytes: {}", bytes, std::strerror(errno));
  }
  auto* data =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage);
  ::madvise(data, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      data, sizes, [memory, size](void*) { ::munmap(memory, size); }, options);
}

static void check(const TablesConfig& config) {
  for (const Table& table : config.tables) {
    if (table.rows < 0 || table.dim < 1) {
      fail<SpecError>("embedding table {}: {} rows of {} columns; expected at least 0 rows and 1 column",
                      table.name, table.rows, table.dim);
    }
  }
  const auto count = static_cast<int64_t>(config.tables.size());
  for (const int64_t table : config.feature_tables) {
    if (table < 0 || table >= count)
      fail<SpecError>("embedding feature of table {}: there are {}", table, count);
  }
}

std::unique_ptr<Tables> make_tables(spec::EmbeddingBackend backend, std::vector<Table> tables,
                                    std::vector<int64_t> feature_tables, const TableOptimizer& optimizer,
                                    at::Device device, const Placement& /*placement*/) {
  using spec::EmbeddingBackend;
  TablesConfig config{std::move(tables), std::move(feature_tables), optimizer};
  check(config);
  if (backend == EmbeddingBackend::kFbgemm || !device.is_cpu()) {
    fail<SpecError>("embedding tables: only the native backend on a CPU, so far");
  }
  return make_native_tables(std::move(config));
}

Lookup concat_lookups(std::span<const Lookup> lookups, int64_t num_features) {
  if (lookups.size() == 1) return lookups[0];
  // Where each feature's bags begin and end, on the host.
  std::vector<at::Tensor> bounds;
  bool weighted = false;
  for (const Lookup& lookup : lookups) {
    weighted = weighted || lookup.weights.defined();
    std::vector<int64_t> places;
    for (int64_t f = 0; f <= num_features; ++f) places.push_back(f * lookup.batch);
    const at::Tensor index = at::tensor(places, at::kLong).to(lookup.offsets.device());
    bounds.push_back(lookup.offsets.index_select(0, index).cpu());
  }
  std::vector<at::Tensor> ids, weights, offsets;
  int64_t begin = 0;
  for (int64_t f = 0; f < num_features; ++f) {
    for (size_t i = 0; i < lookups.size(); ++i) {
      const Lookup& lookup = lookups[i];
      const auto* bound = bounds[i].const_data_ptr<int64_t>();
      const int64_t first = bound[f], count = bound[f + 1] - first;
      ids.push_back(lookup.ids.narrow(0, first, count));
      if (weighted) {
        weights.push_back(lookup.weights.defined()
                              ? lookup.weights.narrow(0, first, count)
                              : at::ones({count}, lookup.ids.options().dtype(at::kFloat)));
      }
      offsets.push_back(lookup.offsets.narrow(0, f * lookup.batch, lookup.batch) + (begin - first));
      begin += count;
    }
  }
  offsets.push_back(at::full({1}, begin, lookups[0].offsets.options()));
  Lookup all;
  all.ids = at::cat(ids);
  all.offsets = at::cat(offsets);
  if (weighted) all.weights = at::cat(weights);
  for (const Lookup& lookup : lookups) all.batch += lookup.batch;
  return all;
}

}  // namespace trainer::embedding
