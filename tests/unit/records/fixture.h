#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "records/open.h"
#include "temporary_directory.h"

namespace trainer::records::test {

// A batch as vectors.
struct Gathered {
  std::vector<float> labels, dense, weights;
  std::vector<int64_t> ids, offsets, groups;
  bool operator==(const Gathered&) const = default;

  // The ids of a feature's bag.
  std::vector<int64_t> bag(size_t feature, size_t row) const {
    const size_t i = feature * labels.size() + row;
    return {ids.begin() + offsets[i], ids.begin() + offsets[i + 1]};
  }
};

inline Gathered gather(const Records& records, const std::vector<int64_t>& rows) {
  const Gather gather(records, rows);
  const RowLayout& layout = records.layout();
  const auto num_ids = static_cast<size_t>(gather.num_ids());
  Gathered batch;
  batch.labels.resize(rows.size());
  batch.dense.resize(rows.size() * static_cast<size_t>(layout.num_dense));
  batch.ids.resize(num_ids);
  batch.weights.resize(layout.weighted ? num_ids : 0);
  batch.offsets.resize(rows.size() * static_cast<size_t>(layout.num_sparse) + 1);
  batch.groups.resize(layout.groups ? rows.size() : 0);
  gather.write({batch.labels.data(), batch.dense.data(), batch.ids.data(), batch.offsets.data(),
                layout.weighted ? batch.weights.data() : nullptr,
                layout.groups ? batch.groups.data() : nullptr});
  return batch;
}

inline Gathered gather_all(const Records& records) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < records.size(); ++i) rows.push_back(i);
  return gather(records, rows);
}

// A job's data section and tables.
struct TestJob {
  spec::Data data;
  spec::Recommender model;

  explicit TestJob(const std::string& path) {
    data.train.path = path;
    data.features.label = "click";
  }
  RecordSets open(int64_t num_threads = 1) const { return open_records(data, model, num_threads); }
};

}  // namespace trainer::records::test
