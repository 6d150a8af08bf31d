#pragma once

#include <chrono>
#include <cstdint>

namespace trainer {

// Monotonic time; comparable between processes of one host.
inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double monotonic_s() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

}  // namespace trainer
