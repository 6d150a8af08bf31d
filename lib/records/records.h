#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Click records as the program holds them, in memory or in a mapped file: rows of one size, one behind the other, so that
// a shuffled batch touches a few cache lines a row.

namespace trainer::records {

// A row: [8: where its ragged part begins][4: number of its ids], both of ragged records only; [8: group];
// [4 or 8 for each sparse feature: the bag's only id, or kEmpty or kBag]; [4: label]; [4 for each dense feature]. The ragged
// part has for each bag that is kBag, in the features' order: [number of ids][ids], as wide as ids are, [4 for each: weight].
// All little-endian, unaligned.
struct RowLayout {
  static constexpr int64_t kEmpty = -1, kBag = -2;

  int64_t num_dense = 0, num_sparse = 0;
  int64_t id_bytes = 4;  // 8: a table has 2^31 rows or more
  bool labels = true;    // else they are 0
  bool groups = false;
  bool ragged = false;    // bags may have more than one id
  bool weighted = false;  // ragged: ids of bags have weights; an only id in a row has weight 1

  int64_t count_at() const { return 8; }  // after the ragged part's place
  int64_t group_at() const { return ragged ? 12 : 0; }
  int64_t ids_at() const { return group_at() + (groups ? 8 : 0); }
  int64_t label_at() const { return ids_at() + id_bytes * num_sparse; }
  int64_t dense_at() const { return label_at() + 4; }
  int64_t stride() const { return dense_at() + 4 * num_dense; }
  bool operator==(const RowLayout&) const = default;
};

// Where a batch goes: B rows, D dense and F sparse features, n ids.
struct BatchPointers {
  float* labels = nullptr;     // [B]
  float* dense = nullptr;      // [B, D]
  int64_t* ids = nullptr;      // [n], all bags of feature 0, then of feature 1, ...
  int64_t* offsets = nullptr;  // [F B + 1]
  float* weights = nullptr;    // [n]; null: not wanted
  int64_t* groups = nullptr;   // [B]; null: not wanted
};

// Const is thread-safe.
class Records {
 public:
  // Where a row is, for messages.
  using Where = std::function<std::string(int64_t row)>;

  // `rows` and `ragged` live as long as `owner`.
  Records(const RowLayout& layout, std::shared_ptr<const void> owner, std::string_view rows,
          std::string_view ragged, uint64_t fingerprint, Where where);

  int64_t size() const { return size_; }
  const RowLayout& layout() const { return layout_; }
  // Of all its bags together.
  int64_t num_ids(int64_t row) const;
  float label(int64_t row) const;
  std::string where(int64_t row) const { return where_(row); }
  // Of the rows' bytes.
  uint64_t fingerprint() const { return fingerprint_; }

  const char* row(int64_t i) const { return rows_.data() + i * stride_; }
  std::string_view ragged() const { return ragged_; }

 private:
  RowLayout layout_;
  int64_t stride_, size_;
  std::shared_ptr<const void> owner_;
  std::string_view rows_, ragged_;
  uint64_t fingerprint_;
  Where where_;
};

// Rows on their way to a batch: they are fetched first, so that the caller can make room for their ids. `rows` must live
// as long.
class Gather {
 public:
  Gather(const Records& records, std::span<const int64_t> rows);
  int64_t num_ids() const { return num_ids_; }
  // Throws DataError when a file is damaged.
  void write(const BatchPointers& to) const;

 private:
  template <class Id>
  void write_ids(const BatchPointers& to) const;
  [[noreturn]] void fail_ragged(int64_t row) const;

  const Records& records_;
  std::span<const int64_t> samples_;
  int64_t num_rows_, num_ids_ = 0;
  std::vector<char> rows_;
};

}  // namespace trainer::records
