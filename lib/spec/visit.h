#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "spec/enums.h"
#include "spec/rule.h"

// What the visitors of describe.h share: telling kinds of fields apart, and their ranges in words.

namespace trainer::spec {

template <class T>
struct OptionalTraits {
  static constexpr bool is = false;
};
template <class T>
struct OptionalTraits<std::optional<T>> {
  static constexpr bool is = true;
};
template <class T>
struct ListTraits {
  static constexpr bool is = false;
};
template <class T>
struct ListTraits<std::vector<T>> {
  static constexpr bool is = true;
};
template <class T>
concept OptionalField = OptionalTraits<T>::is;
template <class T>
concept ListField = ListTraits<T>::is;
template <class T>
struct MapTraits {
  static constexpr bool is = false;
};
template <class T>
struct MapTraits<std::map<std::string, T>> {
  static constexpr bool is = true;
};
template <class T>
concept MapField = MapTraits<T>::is;
template <class T>
concept EnumField = std::is_enum_v<T>;
template <class T>
concept NumberField = std::is_same_v<T, int64_t> || std::is_same_v<T, double>;
// A nested section: one of the spec's structs.
template <class T>
concept SectionField = std::is_class_v<T> && std::is_aggregate_v<T>;
template <class T>
concept SectionMapField = MapField<T> && SectionField<typename T::mapped_type>;

// The full name of a key in a section.
inline std::string join_key(const std::string& section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

// "a, b or c"
inline std::string either(const std::vector<std::string_view>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

template <EnumField E>
std::vector<std::string_view> choices() {
  std::vector<std::string_view> words;
  for (const auto& entry : names(E{})) words.push_back(entry.second);
  return words;
}

// "an integer >= 1", "a number from 0 to 1"
inline std::string range_in_words(std::string_view noun, const Rule& rule) {
  const bool low = std::isfinite(rule.min);
  const bool high = std::isfinite(rule.max);
  if (low && high && !rule.min_is_open && !rule.max_is_open) {
    return fmt::format("{} from {:.15g} to {:.15g}", noun, rule.min, rule.max);
  }
  std::string text(noun);
  if (low) text += fmt::format(" {} {:.15g}", rule.min_is_open ? ">" : ">=", rule.min);
  if (high) text += fmt::format("{} {} {:.15g}", low ? " and" : "", rule.max_is_open ? "<" : "<=", rule.max);
  return text;
}

}  // namespace trainer::spec
