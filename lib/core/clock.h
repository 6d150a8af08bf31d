#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace trainer {

// Monotonic time; comparable between processes of one host.
inline int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t to_ns(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

// A time that does not come.
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

inline double monotonic_s() {
  return static_cast<double>(monotonic_ns()) * 1e-9;
}

// Time of day, seconds since 1970.
inline double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace trainer
