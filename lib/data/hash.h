#pragma once

#include <cstdint>

#include "core/mix64.h"

namespace trainer::data {

using trainer::mix64;

// Random key of a sample in an epoch; its token at `position` has the row key mix64(sample_key + position).
constexpr uint64_t sample_key(uint64_t seed, int64_t epoch, int64_t sample) {
  return mix64(mix64(mix64(seed) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(sample));
}

}  // namespace trainer::data
