#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace trainer::text {

// The ids of words that were seen lately: each has one place, a cache line, which the last one keeps.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15;
  static constexpr size_t kMaxIds = 11;

  struct alignas(64) Line {
    uint64_t low = 0, high = 0;  // the word's bytes, and in the highest its length: 0 is no word
    uint32_t num_ids = 0;
    std::array<int32_t, kMaxIds> ids;
  };

  // For texts of about `num_bytes`.
  explicit WordCache(size_t num_bytes)
      : shift_(64 - std::clamp<int>(static_cast<int>(std::bit_width(num_bytes / 16)), kMinBits, kMaxBits)),
        lines_(size_t{1} << (64 - shift_)) {}

  // The word's place; `found` tells whether it is there (if not, the place is marked as its, and the caller
  // fills it in). 0 < word.size() <= kMaxBytes.
  Line& find(std::string_view word, bool& found) {
    uint64_t low = 0, high = 0;
    std::memcpy(&low, word.data(), std::min<size_t>(word.size(), 8));
    if (word.size() > 8) std::memcpy(&high, word.data() + 8, word.size() - 8);
    high |= static_cast<uint64_t>(word.size()) << 56;
    Line& line = lines_[((low ^ std::rotl(high, 29)) * 0x9E3779B97F4A7C15U) >> shift_];
    found = line.low == low && line.high == high;
    line.low = low;
    line.high = high;
    return line;
  }

 private:
  static constexpr int kMinBits = 4, kMaxBits = 14;  // at most 1 MiB
  int shift_;
  std::vector<Line> lines_;
};

}  // namespace trainer::text
