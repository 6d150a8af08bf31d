#pragma once

#include <cstdint>

namespace trainer::data {

// The order of an epoch: a pseudorandom permutation of 0 .. n-1 that is a function of (n, seed, epoch) only,
// the same on every rank and platform. Computed, not stored: any position in constant time and no memory, so
// resuming is a number.
//
// A generalized Feistel network on the grid rows × columns ⊇ [0, n), walking on while outside of n (Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
class Sampler {
 public:
  // `shuffle` false: the identity.
  Sampler(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);
  // Sample at `position`, 0 <= position < n.
  int64_t operator[](int64_t position) const;
  int64_t size() const { return static_cast<int64_t>(n_); }

 private:
  uint64_t n_, key_, rows_, columns_;
  bool shuffle_;
};

}  // namespace trainer::data
