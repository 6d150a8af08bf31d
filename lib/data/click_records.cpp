#include "data/click_records.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"
#include "core/parallel_for.h"
#include "data/hash.h"

namespace trainer::data {

ClickRecords::ClickRecords(std::shared_ptr<const records::Records> records, records::FeatureInfo info)
    : records_(std::move(records)), info_(std::move(info)) {}

int64_t ClickRecords::cost(int64_t sample) const {
  return records_->num_ids(sample) + records_->layout().num_dense + 1;
}

std::vector<int32_t> ClickRecords::lengths(int64_t num_threads) const {
  std::vector<int32_t> lengths(static_cast<size_t>(size()));
  constexpr int64_t kChunk = 1 << 14;
  parallel_for(size(), kChunk, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) lengths[static_cast<size_t>(i)] = static_cast<int32_t>(cost(i));
  });
  return lengths;
}

Batch ClickRecords::batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                          bool pinned) const {
  const records::RowLayout& layout = records_->layout();
  const records::Gather gather(*records_, samples);
  const auto num_rows = static_cast<int64_t>(samples.size());
  const auto options = at::TensorOptions().pinned_memory(pinned);
  Batch batch;
  batch.samples = samples;
  batch.labels = at::empty({num_rows}, options.dtype(at::kFloat));
  batch.row_keys = at::empty({num_rows}, options.dtype(at::kLong));
  auto* keys = batch.row_keys.mutable_data_ptr<int64_t>();
  for (const int64_t sample : samples) *keys++ = static_cast<int64_t>(mix64(sample_key(seed, epoch, sample)));
  Records& to = batch.records;
  to.dense = at::empty({num_rows, layout.num_dense}, options.dtype(at::kFloat));
  to.ids = at::empty({gather.num_ids()}, options.dtype(at::kLong));
  to.offsets = at::empty({layout.num_sparse * num_rows + 1}, options.dtype(at::kLong));
  records::BatchPointers pointers;
  pointers.labels = batch.labels.mutable_data_ptr<float>();
  pointers.dense = to.dense.mutable_data_ptr<float>();
  pointers.ids = to.ids.mutable_data_ptr<int64_t>();
  pointers.offsets = to.offsets.mutable_data_ptr<int64_t>();
  if (layout.weighted) {
    to.weights = at::empty({gather.num_ids()}, options.dtype(at::kFloat));
    pointers.weights = to.weights.mutable_data_ptr<float>();
  }
  if (layout.groups) {
    to.groups = at::empty({num_rows}, options.dtype(at::kLong));
    pointers.groups = to.groups.mutable_data_ptr<int64_t>();
  }
  gather.write(pointers);
  if (!layout.labels) batch.labels = at::Tensor();  // not zeros, which would be clicks that did not happen
  check_ids(batch);
  return batch;
}

void ClickRecords::check_ids(const Batch& batch) const {
  const int64_t* ids = batch.records.ids.const_data_ptr<int64_t>();
  const int64_t* offsets = batch.records.offsets.const_data_ptr<int64_t>();
  const auto num_rows = static_cast<int64_t>(batch.samples.size());
  for (size_t f = 0; f < info_.sparse.size(); ++f, offsets += num_rows) {
    const records::TableInfo& table = info_.tables[static_cast<size_t>(info_.sparse[f].table)];
    int64_t largest = -1;
    for (int64_t i = offsets[0]; i < offsets[num_rows]; ++i) largest = std::max(largest, ids[i]);
    if (largest < table.rows) continue;
    const int64_t at = std::find(ids + offsets[0], ids + offsets[num_rows], largest) - ids;
    const int64_t bag = std::upper_bound(offsets, offsets + num_rows, at) - offsets - 1;
    fail<DataError>("{}: {}: got row {} of table {}, which has {} rows; the file is damaged",
                    where(batch.samples[static_cast<size_t>(bag)]), info_.sparse[f].name, largest, table.name,
                    table.rows);
  }
}

}  // namespace trainer::data
