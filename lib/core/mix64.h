#pragma once

#include <cstdint>

namespace trainer {

// Bijective mix of 64 bits: the finalizer of splitmix64 (Steele, Lea, Flood 2014, with Stafford's constants).
// The base of every random choice about data, so that they are equal on every platform and standard library.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace trainer
