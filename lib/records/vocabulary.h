#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::records {

// Distinct strings, numbered in the order in which they were added. Two words of memory a string besides its bytes.
class StringIndex {
 public:
  static constexpr int64_t kNone = -1;

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  // The number of `text`, which it gets when it is new.
  int64_t add(std::string_view text);
  // kNone: it is not there.
  int64_t find(std::string_view text) const;
  std::string_view operator[](int64_t number) const;
  int64_t memory_bytes() const;

 private:
  size_t slot_of(std::string_view text, uint64_t hash) const;
  void grow();

  struct Slot {
    uint32_t tag = 0;     // of the hash
    uint32_t number = 0;  // + 1; 0: empty
  };
  std::vector<Slot> slots_;  // a power of two of them, at most 3/4 used
  std::vector<uint64_t> ends_;
  std::string bytes_;
};

// How often each id of a table occurs; one for each thread, then merged.
class IdCounts {
 public:
  void add(std::string_view id, int64_t times = 1);
  void merge(const IdCounts& other);
  int64_t size() const { return ids_.size(); }
  std::string_view id(int64_t number) const { return ids_[number]; }
  int64_t count(int64_t number) const { return counts_[static_cast<size_t>(number)]; }

 private:
  StringIndex ids_;
  std::vector<int64_t> counts_;
};

// The ids that have a row of their own: those with at least `min_count` occurrences, at most the `most` most
// frequent of them, by falling count and then by their bytes, so that the order does not depend on threads. Their rows are 1 and
// on; row 0 is of all other ids and of missing ones.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(const IdCounts& counts, int64_t min_count, int64_t most);

  // With row 0.
  int64_t rows() const { return ids_.size() + 1; }
  int64_t row(std::string_view id) const { return ids_.find(id) + 1; }
  std::string_view id(int64_t row) const { return ids_[row - 1]; }

  // An id a line, from row 1 on; of line ends and backslashes in ids, \n, \r and \\.
  void save(const std::filesystem::path& file) const;
  // Throws DataError when the file has not `rows` - 1 different ids.
  static Vocabulary load(const std::filesystem::path& file, int64_t rows);
  // Changes with any of its ids.
  uint64_t fingerprint() const;

 private:
  StringIndex ids_;
};

}  // namespace trainer::records
