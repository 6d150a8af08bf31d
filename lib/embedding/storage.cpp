#include "embedding/storage.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer::embedding {

StoredTables::StoredTables(TablesConfig config, at::Device device, bool allocate)
    : config_(std::move(config)), device_(device), columns_(feature_columns(config_)) {
  if (!allocate) return;
  for (const Table& table : config_.tables) {
    storage_.push_back(this->allocate(
        table, [&](at::IntArrayRef sizes, at::ScalarType dtype) { return zeros(sizes, dtype, device); }));
  }
}

TableStorage StoredTables::allocate(const Table& table, const Allocate& make) const {
  const TableOptimizer& optimizer = config_.optimizer;
  TableStorage s;
  s.weight = make({table.rows, table.dim}, scalar_type(table.dtype));
  switch (optimizer.type) {
    case spec::TableOptimizerType::kRowwiseAdagrad:
      s.sum = make({table.rows}, at::kFloat);
      break;
    case spec::TableOptimizerType::kAdagrad:
      s.sum = make({table.rows, table.dim}, at::kFloat);
      break;
    case spec::TableOptimizerType::kAdam:
      s.exp_avg = make({table.rows, table.dim}, at::kFloat);
      s.exp_avg_sq = make({table.rows, table.dim}, at::kFloat);
      break;
    case spec::TableOptimizerType::kSgd:
      break;
  }
  if (optimizer.type == spec::TableOptimizerType::kAdam || rounds_stochastically(table, optimizer)) {
    s.step = at::zeros({}, at::kLong);
  }
  return s;
}

at::Tensor StoredTables::weight(int64_t table) {
  return storage_.at(static_cast<size_t>(table)).weight;
}

static std::vector<std::pair<std::string, at::Tensor>> named(const TableStorage& s) {
  std::vector<std::pair<std::string, at::Tensor>> all{
      {"sum", s.sum}, {"exp_avg", s.exp_avg}, {"exp_avg_sq", s.exp_avg_sq}, {"step", s.step}};
  std::erase_if(all, [](const auto& pair) { return !pair.second.defined(); });
  return all;
}

std::vector<std::pair<std::string, at::Tensor>> StoredTables::state(int64_t table) {
  return named(storage_.at(static_cast<size_t>(table)));
}

int64_t StoredTables::state_bytes() const {
  int64_t bytes = 0;
  for (const TableStorage& s : storage_) {
    for (const auto& [name, tensor] : named(s)) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

void StoredTables::count_step() {
  for (const TableStorage& s : storage_) {
    if (s.step.defined()) *s.step.mutable_data_ptr<int64_t>() += 1;
  }
}

int64_t StoredTables::step_of(size_t table) const {
  const at::Tensor& step = storage_[table].step;
  return step.defined() ? *step.const_data_ptr<int64_t>() : 0;
}

std::vector<int64_t> feature_bounds(const Lookup& lookup, int64_t num_features) {
  std::vector<int64_t> places;
  for (int64_t f = 0; f <= num_features; ++f) places.push_back(f * lookup.batch);
  const at::Tensor index = at::tensor(places, at::kLong).to(lookup.offsets.device());
  const at::Tensor bounds = lookup.offsets.index_select(0, index).cpu();
  return {bounds.const_data_ptr<int64_t>(), bounds.const_data_ptr<int64_t>() + bounds.numel()};
}

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

}  // namespace trainer::embedding
