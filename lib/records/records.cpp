#include "records/records.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace trainer::records {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

Records::Records(const RowLayout& layout, std::shared_ptr<const void> owner, std::string_view rows,
                 std::string_view ragged, uint64_t fingerprint, Where where)
    : layout_(layout),
      stride_(layout.stride()),
      size_(static_cast<int64_t>(rows.size()) / stride_),
      owner_(std::move(owner)),
      rows_(rows),
      ragged_(ragged),
      fingerprint_(fingerprint),
      where_(std::move(where)) {}

int64_t Records::num_ids(int64_t row) const {
  return layout_.ragged ? load<int32_t>(this->row(row) + layout_.count_at()) : layout_.num_sparse;
}

float Records::label(int64_t row) const {
  return load<float>(this->row(row) + layout_.label_at());
}

Gather::Gather(const Records& records, std::span<const int64_t> rows)
    : records_(records), samples_(rows), num_rows_(static_cast<int64_t>(rows.size())) {
  const RowLayout& layout = records.layout();
  const auto stride = static_cast<size_t>(layout.stride());
  rows_.resize(rows.size() * stride);
  // Rows far apart: the memory's latency is most of the time unless several are on their way.
  constexpr size_t kAhead = 16, kLine = 64;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      const char* next = records.row(rows[i + kAhead]);
      for (size_t at = 0; at < stride; at += kLine) __builtin_prefetch(next + at);
    }
    std::memcpy(rows_.data() + i * stride, records.row(rows[i]), stride);
  }
  if (layout.ragged) {
    for (size_t i = 0; i < rows.size(); ++i)
      num_ids_ += load<int32_t>(rows_.data() + i * stride + layout.count_at());
    return;
  }
  // Bags without an id are rare, but legal.
  for (size_t i = 0; i < rows.size(); ++i) {
    const char* ids = rows_.data() + i * stride + layout.ids_at();
    for (int64_t f = 0; f < layout.num_sparse; ++f) {
      num_ids_ += layout.id_bytes == 4 ? load<int32_t>(ids + 4 * f) >= 0 : load<int64_t>(ids + 8 * f) >= 0;
    }
  }
}

template <class Id>
void Gather::write_ids(const BatchPointers& to) const {
  const RowLayout& layout = records_.layout();
  const auto stride = static_cast<size_t>(layout.stride());
  const std::string_view ragged = records_.ragged();
  std::vector<uint64_t> places;  // in the ragged part, of each row
  if (layout.ragged) {
    for (size_t b = 0; b < static_cast<size_t>(num_rows_); ++b)
      places.push_back(load<uint64_t>(rows_.data() + b * stride));
  }
  int64_t at = 0;
  int64_t* offset = to.offsets;
  for (int64_t f = 0; f < layout.num_sparse; ++f) {
    const char* slot = rows_.data() + layout.ids_at() + f * static_cast<int64_t>(sizeof(Id));
    for (int64_t b = 0; b < num_rows_; ++b, slot += stride) {
      *offset++ = at;
      const Id id = load<Id>(slot);
      if (id >= 0) {
        if (at == num_ids_) fail_ragged(b);
        if (to.weights != nullptr) to.weights[at] = 1;
        to.ids[at++] = id;
        continue;
      }
      if (id == RowLayout::kEmpty) continue;
      if (!layout.ragged) fail_ragged(b);
      uint64_t& place = places[static_cast<size_t>(b)];
      const uint64_t left = place < ragged.size() ? ragged.size() - place : 0;
      const uint64_t n = left < sizeof(Id) ? 0 : static_cast<uint64_t>(load<Id>(ragged.data() + place));
      const uint64_t width = sizeof(Id) + (layout.weighted ? sizeof(float) : 0);
      if (n < 1 || n > static_cast<uint64_t>(num_ids_ - at) || n * width > left - sizeof(Id)) fail_ragged(b);
      place += sizeof(Id);
      for (uint64_t i = 0; i < n; ++i)
        to.ids[at + static_cast<int64_t>(i)] = load<Id>(ragged.data() + place + i * sizeof(Id));
      place += n * sizeof(Id);
      if (layout.weighted) {
        if (to.weights != nullptr) std::memcpy(to.weights + at, ragged.data() + place, n * sizeof(float));
        place += n * sizeof(float);
      } else if (to.weights != nullptr) {
        std::fill_n(to.weights + at, n, 1.0F);
      }
      at += static_cast<int64_t>(n);
    }
  }
  *offset = at;
  if (at != num_ids_)
    fail<DataError>("{}: damaged: the numbers of ids in its rows are wrong", records_.where(samples_[0]));
}

void Gather::fail_ragged(int64_t row) const {
  fail<DataError>("{}: damaged: its ids are not as the row says",
                  records_.where(samples_[static_cast<size_t>(row)]));
}

void Gather::write(const BatchPointers& to) const {
  const RowLayout& layout = records_.layout();
  const auto stride = static_cast<size_t>(layout.stride());
  const auto num_dense = static_cast<size_t>(layout.num_dense);
  const char* row = rows_.data();
  for (int64_t b = 0; b < num_rows_; ++b, row += stride) {
    if (to.labels != nullptr) to.labels[b] = load<float>(row + layout.label_at());
    std::memcpy(to.dense + static_cast<size_t>(b) * num_dense, row + layout.dense_at(),
                num_dense * sizeof(float));
    if (to.groups != nullptr) to.groups[b] = load<int64_t>(row + layout.group_at());
  }
  layout.id_bytes == 4 ? write_ids<int32_t>(to) : write_ids<int64_t>(to);
}

}  // namespace trainer::records
