#include "records/row_encoder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "records/columns.h"
#include "records/fields.h"
#include "records/murmur.h"
#include "spec/fault.h"

namespace trainer::records {
namespace {

template <class T>
void append(const T& value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

FieldColumns::FieldColumns(const RecordReader& reader, const spec::Features& features, bool labels_required) {
  for (const std::string& name : features.dense)
    columns.push_back(find_column(reader.columns(), "data.features.dense", name));
  for (const std::string& name : features.sparse)
    columns.push_back(find_column(reader.columns(), "data.features.sparse", name));
  labels = labels_required || has_column(reader.columns(), features.label);
  if (labels) columns.push_back(find_column(reader.columns(), "data.features.label", features.label));
  if (!features.group.empty())
    columns.push_back(find_column(reader.columns(), "data.features.group", features.group));
}

RowEncoder::RowEncoder(const FeatureMap& map, const RowLayout& layout, const RecordReader& reader,
                       int64_t part, EncodedRows& out)
    : map_(map), layout_(layout), reader_(reader), part_(part), out_(out) {
  out_.out_of_range.resize(map.info_.sparse.size());
}

std::string RowEncoder::where(std::string_view column) const {
  return fmt::format("{}: {}", reader_.where(part_, row_), column);
}

void RowEncoder::add(int64_t row, std::span<const std::string_view> fields) {
  row_ = row;
  const size_t num_dense = map_.info_.dense.size(), num_sparse = map_.info_.sparse.size();
  const size_t begin = out_.rows.size();
  if (layout_.ragged) {
    append(static_cast<uint64_t>(out_.ragged.size()), out_.rows);
    append(int32_t{0}, out_.rows);
    num_ids_ = 0;
  }
  if (layout_.groups) append(murmur(fields.back()), out_.rows);
  for (size_t f = 0; f < num_sparse; ++f) {
    const std::string_view field = fields[num_dense + f];
    if (layout_.ragged) {
      bag(f, field);
    } else {
      put_id(field.empty() ? 0 : id(f, field), out_.rows);
    }
  }
  append(layout_.labels ? label(fields[num_dense + num_sparse]) : 0.0F, out_.rows);
  for (size_t i = 0; i < num_dense; ++i) append(dense(i, fields[i]), out_.rows);
  if (layout_.ragged) {
    std::memcpy(out_.rows.data() + begin + layout_.count_at(), &num_ids_, sizeof num_ids_);
  }
  ++out_.num_rows;
}

float RowEncoder::dense(size_t feature, std::string_view field) const {
  if (field.empty()) return 0;
  double value = 0;
  const bool is_number = parse_number(field, value);
  if (is_number && map_.features_.dense_transform == spec::DenseTransform::kLog && std::isfinite(value))
    value = std::log1p(std::max(value, 0.0));
  const auto narrow = static_cast<float>(value);
  if (is_number && std::isfinite(narrow)) return narrow;
  fail<DataError>("{}: got {}; expected a finite number, or nothing for 0", where(map_.info_.dense[feature]),
                  spec::shown(field));
}

float RowEncoder::label(std::string_view field) const {
  const auto& threshold = map_.features_.label_threshold;
  if (!threshold && field == "0") return 0;
  if (!threshold && field == "1") return 1;
  double value = 0;
  if (parse_number(field, value) && std::isfinite(value)) {
    if (threshold) return value >= *threshold ? 1 : 0;
    if (value == 0 || value == 1) return static_cast<float>(value);
    fail<DataError>(
        "{}: got {}; expected 0 or 1\nhint: data.features.label_threshold makes clicks of ratings: those of "
        "at least it",
        where(map_.features_.label), spec::shown(field));
  }
  fail<DataError>("{}: got {}; expected {}", where(map_.features_.label), spec::shown(field),
                  threshold ? "a number" : "0 or 1");
}

void RowEncoder::put_id(int64_t id, std::string& to) const {
  if (layout_.id_bytes == 4) {
    append(static_cast<int32_t>(id), to);
  } else {
    append(id, to);
  }
}

void RowEncoder::bag(size_t feature, std::string_view field) {
  bag_.clear();
  weights_.clear();
  for_each_item(map_.features_, field, [&](std::string_view text, std::string_view weight) {
    const int64_t row = id(feature, text);
    if (row < 0) return;
    double value = 1;
    if (!weight.empty() && (!parse_number(weight, value) || !std::isfinite(static_cast<float>(value)))) {
      fail<DataError>("{}: got weight {} of id {}; expected a finite number",
                      where(map_.info_.sparse[feature].name), spec::shown(weight), spec::shown(text));
    }
    bag_.push_back(row);
    weights_.push_back(static_cast<float>(value));
  });
  num_ids_ += static_cast<int32_t>(bag_.size());
  if (bag_.empty()) return put_id(RowLayout::kEmpty, out_.rows);
  if (bag_.size() == 1 && weights_[0] == 1) return put_id(bag_[0], out_.rows);
  put_id(RowLayout::kBag, out_.rows);
  put_id(static_cast<int64_t>(bag_.size()), out_.ragged);
  for (const int64_t row : bag_) put_id(row, out_.ragged);
  if (!layout_.weighted) return;
  for (const float weight : weights_) append(weight, out_.ragged);
}

int64_t RowEncoder::id(size_t feature, std::string_view field) {
  const auto table = static_cast<size_t>(map_.info_.sparse[feature].table);
  const int64_t rows = map_.info_.tables[table].rows;
  switch (map_.features_.ids) {
    case spec::IdMapping::kVocabulary:
      return map_.vocabularies_[table].row(field);
    case spec::IdMapping::kMurmur:
      return static_cast<int64_t>(murmur(field) % static_cast<uint64_t>(rows));
    case spec::IdMapping::kModulo:
    case spec::IdMapping::kIdentity:
      break;
  }
  return number(feature, field, rows);
}

int64_t RowEncoder::number(size_t feature, std::string_view field, int64_t rows) {
  const bool modulo = map_.features_.ids == spec::IdMapping::kModulo;
  const auto urows = static_cast<uint64_t>(rows);
  const IdNumber id =
      parse_id(field, modulo ? (map_.hexadecimal_ ? IdBase::kHexadecimal : IdBase::kAny) : IdBase::kDecimal);
  const bool is_number = id.kind == IdNumber::kValue;
  if (is_number && !id.negative && (modulo || id.magnitude < urows)) {
    return static_cast<int64_t>(modulo ? id.magnitude % urows : id.magnitude);
  }
  const spec::OutOfRange rule = map_.features_.out_of_range;
  if (rule == spec::OutOfRange::kError || (rule == spec::OutOfRange::kWrap && !is_number)) {
    fail_id(feature, field, id);
  }
  ++out_.out_of_range[feature];
  if (rule == spec::OutOfRange::kIgnore) return RowLayout::kEmpty;
  const uint64_t rest = id.magnitude % urows;
  return static_cast<int64_t>(id.negative && rest > 0 ? urows - rest : rest);
}

void RowEncoder::fail_id(size_t feature, std::string_view field, const IdNumber& id) const {
  const SparseFeature& sparse = map_.info_.sparse[feature];
  const TableInfo& table = map_.info_.tables[static_cast<size_t>(sparse.table)];
  const bool modulo = map_.features_.ids == spec::IdMapping::kModulo;
  const char* expected = id.kind == IdNumber::kTooLarge ? "a number of at most 64 bits"
                         : id.negative                  ? "a number of 0 or more"
                         : map_.hexadecimal_            ? "a hexadecimal number"
                                                        : "a decimal or hexadecimal number";
  fail<DataError>(
      "{}: got id {}; expected {} of table {}\nhint: {}", where(sparse.name), spec::shown(field),
      modulo ? fmt::format("{}, modulo the {} rows", expected, table.rows)
             : fmt::format("a row, 0 to {},", table.rows - 1),
      table.name,
      id.kind == IdNumber::kValue
          ? "data.features.out_of_range: wrap takes ids modulo the rows, ignore leaves them out"
          : "data.features.ids: murmur or vocabulary take ids of any form; out_of_range: ignore leaves "
            "such ids out");
}

}  // namespace trainer::records
