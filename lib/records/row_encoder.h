#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "records/feature_map.h"
#include "records/fields.h"

namespace trainer::records {

// The columns of a file that a map reads, in the order in which RowEncoder takes their fields: dense features, sparse
// features, then the label and the group where there are such.
struct FieldColumns {
  std::vector<int64_t> columns;
  bool labels = false;

  FieldColumns(const RecordReader& reader, const spec::Features& features, bool labels_required);
};

// Makes rows of fields: one for each part of a file.
class RowEncoder {
 public:
  RowEncoder(const FeatureMap& map, const RowLayout& layout, const RecordReader& reader, int64_t part,
             EncodedRows& out);
  // Appends a row to `out`. Throws DataError naming file, line and column.
  void add(int64_t row, std::span<const std::string_view> fields);

 private:
  float dense(size_t feature, std::string_view field) const;
  float label(std::string_view field) const;
  // The row of the feature's table; kEmpty: left out.
  int64_t id(size_t feature, std::string_view field);
  void bag(size_t feature, std::string_view field);
  int64_t number(size_t feature, std::string_view field, int64_t rows);
  void put_id(int64_t id, std::string& to) const;
  [[noreturn]] void fail_id(size_t feature, std::string_view field, const IdNumber& id) const;
  std::string where(std::string_view column) const;

  const FeatureMap& map_;
  const RowLayout& layout_;
  const RecordReader& reader_;
  int64_t part_, row_ = 0;
  EncodedRows& out_;
  int32_t num_ids_ = 0;  // of this row
  std::vector<int64_t> bag_;
  std::vector<float> weights_;
};

}  // namespace trainer::records
