#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainer::text {

// Byte-pair merges (Sennrich et al., 2016): of the adjacent pairs that have a rule, the one of the lowest rank,
// and of equal ones the leftmost, becomes one token, until none is left.
class Merges {
 public:
  struct Rule {
    int32_t left, right, merged;
  };
  // Buffers of one thread.
  struct Scratch {
    struct Symbol {
      int32_t id;
      uint32_t rank;  // of the pair with the next symbol; kNoRule also once this one is merged away
      uint32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // of pairs: rank << 32 | index of the first symbol
  };

  Merges() = default;
  // A rule's rank is its index; of two for the same pair the last counts, as in Hugging Face.
  explicit Merges(const std::vector<Rule>& rules);

  // Merges the tokens ids[begin...] of one word, fewer than 2^32, in place. In time n log n of the word's
  // length.
  void apply(std::vector<int32_t>& ids, size_t begin, Scratch& scratch) const;

 private:
  static constexpr uint32_t kNoRule = UINT32_MAX;
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNoRule;
  };
  static uint64_t pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15U) >> shift_; }
  uint32_t rank(int32_t left, int32_t right) const;
  void apply_short(std::vector<int32_t>& ids, size_t begin) const;
  void apply_long(std::vector<int32_t>& ids, size_t begin, Scratch& scratch) const;

  int shift_ = 63;
  std::vector<Slot> slots_ = std::vector<Slot>(2);  // a power of two
  std::vector<int32_t> merged_;                     // by rank
};

}  // namespace trainer::text
