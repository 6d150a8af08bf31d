#include "core/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace trainer {

std::string si(double value, std::string_view unit) {
  if (!std::isfinite(value)) return fmt::format("? {}", unit);
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  for (; std::abs(value) >= 999.95 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[prefix], unit);
}

std::string binary_bytes(int64_t value) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double scaled = static_cast<double>(value);
  size_t unit = 0;
  for (; scaled >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) scaled /= 1024;
  return fmt::format("{:.{}f} {}", scaled, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

std::string short_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  return seconds < 0.1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  const int64_t first = value < 0 ? 1 : 0;
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > first; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

}  // namespace trainer
