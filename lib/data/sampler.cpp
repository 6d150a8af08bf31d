#include "data/sampler.h"

#include <cmath>

#include "core/mix64.h"

namespace trainer::data {

Sampler::Sampler(int64_t n, uint64_t seed, int64_t epoch, bool shuffle)
    : n_(static_cast<uint64_t>(n)),
      key_(mix64(mix64(seed) + static_cast<uint64_t>(epoch))),
      shuffle_(shuffle) {
  // Any rows × columns >= n is right; close to n and square is fast and mixes well. sqrt's rounding is the
  // same on all IEEE machines.
  rows_ = static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(n_))));
  columns_ = rows_ == 0 ? 0 : (n_ + rows_ - 1) / rows_;
}

int64_t Sampler::operator[](int64_t position) const {
  if (!shuffle_) return position;
  constexpr uint64_t kRounds = 4;  // pairs of rounds
  auto index = static_cast<uint64_t>(position);
  do {
    uint64_t row = index / columns_;
    uint64_t column = index % columns_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      row = (row + mix64(key_ + (2 * round << 56) + column) % rows_) % rows_;
      column = (column + mix64(key_ + ((2 * round + 1) << 56) + row) % columns_) % columns_;
    }
    index = row * columns_ + column;
  } while (index >= n_);
  return static_cast<int64_t>(index);
}

}  // namespace trainer::data
