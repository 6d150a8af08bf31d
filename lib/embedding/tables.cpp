#include "embedding/tables.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "core/error.h"
#include "embedding/backends.h"
#include "embedding/storage.h"

namespace trainer::embedding {

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
                                    at::Device device, const Placement& placement) {
  using spec::EmbeddingBackend;
  TablesConfig config{std::move(tables), std::move(feature_tables), optimizer};
  check(config);
  if (backend == EmbeddingBackend::kAuto && device.is_cuda() && fbgemm_fault(config, device).empty()) {
    backend = EmbeddingBackend::kFbgemm;
  }
  if (backend == EmbeddingBackend::kFbgemm) return make_fbgemm_tables(std::move(config), device, placement);
  if (device.is_cuda() && placement.memory != spec::EmbeddingMemory::kDevice) {
    fail<SpecError>(
        "model.recommender.embedding_memory: tables in the host's memory need the fbgemm backend: {}",
        fbgemm_fault(config, device));
  }
  if (device.is_cpu()) return make_native_tables(std::move(config));
  return make_composed_tables(std::move(config), device);
}

Lookup concat_lookups(std::span<const Lookup> lookups, int64_t num_features) {
  if (lookups.size() == 1) return lookups[0];
  std::vector<std::vector<int64_t>> bounds;
  bool weighted = false;
  for (const Lookup& lookup : lookups) {
    weighted = weighted || lookup.weights.defined();
    bounds.push_back(feature_bounds(lookup, num_features));
  }
  std::vector<at::Tensor> ids, weights, offsets;
  int64_t begin = 0;
  for (int64_t f = 0; f < num_features; ++f) {
    for (size_t i = 0; i < lookups.size(); ++i) {
      const Lookup& lookup = lookups[i];
      const auto feature = static_cast<size_t>(f);
      const int64_t first = bounds[i][feature], count = bounds[i][feature + 1] - first;
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
