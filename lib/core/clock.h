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

// Time of day, seconds since 1970.
inline double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace trainer
