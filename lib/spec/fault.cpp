#include "spec/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/error.h"

namespace trainer::spec {
namespace {

// Optimal string alignment distance; upper and lower case are the same.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  const auto same = [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); };
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Too large for a double is a number still; "inf" and "nan" are words.
  return error != std::errc::invalid_argument && end == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

void Faults::add(const Place& place, std::string_view key, std::string_view message) {
  std::string line = place.where;
  // "--set train.steps" names the key already, unless a part of its value is meant.
  if (!key.empty() && !place.names_key && line != fmt::format("--set {}", key))
    line += fmt::format("{}{}", line.empty() ? "" : ": ", key);
  line += fmt::format("{}{}", line.empty() ? "" : ": ", message);
  faults_.push_back({place, std::move(line)});
}

void Faults::throw_if_any() const {
  if (faults_.empty()) return;
  auto sorted = faults_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Fault& a, const Fault& b) {
    return std::tie(a.place.source, a.place.line, a.place.column) <
           std::tie(b.place.source, b.place.line, b.place.column);
  });
  std::string text;
  for (const auto& fault : sorted) text += fault.line + '\n';
  fail<SpecError>("{}{} fault{} in {}", text, sorted.size(), sorted.size() == 1 ? "" : "s",
                  file_.empty() ? "the job spec" : file_);
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    // Short of computing it: the difference in length bounds the distance from below.
    if (word.size() > candidate.size() + best_distance) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const std::string_view near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::string shown(std::string_view text) {
  if (is_number(text)) return std::string(text.substr(0, 60));
  std::string out = "\"";
  size_t count = 0;
  for (const char c : text) {
    const bool is_start = (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // of a UTF-8 sequence
    if (is_start && ++count > 60) return out + "...\"";
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace trainer::spec
