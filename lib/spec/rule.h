#pragma once

#include <initializer_list>
#include <limits>
#include <string_view>
#include <vector>

namespace trainer::spec {

// What a key's value may be beyond its C++ type, built up in describe.h: above(0).in("s").also({"timeout"}).
struct Rule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_is_open = false;
  bool max_is_open = false;
  std::string_view unit;                      // of a number
  std::vector<std::string_view> words;        // of a string: these words, or an integer within the bounds
  bool is_column = false;                     // of a string: a name, or a number from 0
  bool repeats = false;                       // of a list: the same value may stand there twice
  const char* pattern = nullptr;              // of a string: the ECMAScript expression that the whole matches
  std::string_view form;                      // that, for people
  std::vector<std::string_view> other_names;  // what other trainers call it: for "did you mean"

  bool admits(double value) const {
    return (min_is_open ? value > min : value >= min) && (max_is_open ? value < max : value <= max);
  }

  Rule at_most(double bound) && {
    max = bound;
    return std::move(*this);
  }
  Rule below(double bound) && {
    max = bound;
    max_is_open = true;
    return std::move(*this);
  }
  Rule in(std::string_view name) && {
    unit = name;
    return std::move(*this);
  }
  // A string that a regular expression matches whole (the bounds are for one that is a number); `words` say so.
  Rule matching(const char* expression, std::string_view in_words) && {
    pattern = expression;
    form = in_words;
    return std::move(*this);
  }
  Rule repeated() && {
    repeats = true;
    return std::move(*this);
  }
  Rule also(std::initializer_list<std::string_view> names) && {
    other_names = names;
    return std::move(*this);
  }
};

inline Rule anything() {
  return {};
}
inline Rule at_least(double bound) {
  Rule rule;
  rule.min = bound;
  return rule;
}
inline Rule above(double bound) {
  Rule rule = at_least(bound);
  rule.min_is_open = true;
  return rule;
}
// A string that is one of `words` or an integer of at least `bound`.
inline Rule words_or_at_least(std::initializer_list<std::string_view> words, double bound) {
  Rule rule = at_least(bound);
  rule.words = words;
  return rule;
}
// A column of a table: its name in the header, or its number from 0.
inline Rule column() {
  Rule rule;
  rule.is_column = true;
  return rule;
}

}  // namespace trainer::spec
