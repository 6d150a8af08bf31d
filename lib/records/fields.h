#pragma once

#include <cstdint>
#include <string_view>

#include "spec/job_spec.h"

// What fields of text say.

namespace trainer::records {

// A decimal number, spaces around it and a sign before it allowed; "nan" and "inf" are numbers. False: it is none.
bool parse_number(std::string_view text, double& value);

enum class IdBase {
  kDecimal,
  kHexadecimal,  // with or without 0x
  kAny,          // decimal where it is digits alone, else hexadecimal
};

struct IdNumber {
  enum Kind { kValue, kTooLarge, kNotANumber };
  Kind kind = kNotANumber;  // kTooLarge: of 64 bits
  uint64_t magnitude = 0;
  bool negative = false;  // and not 0
};

IdNumber parse_id(std::string_view text, IdBase base);

// Calls add(id, weight) for each id of a field, as data.features.separator and weight_separator part it; what is empty is
// left out. The last weight_separator counts: ids may have it too. No weight: an empty one.
template <class Add>
void for_each_item(const spec::Features& features, std::string_view field, const Add& add) {
  const std::string_view separator = features.separator, mark = features.weight_separator;
  while (!field.empty()) {
    const size_t stop = separator.empty() ? field.npos : field.find(separator);
    std::string_view id = field.substr(0, stop), weight;
    if (const size_t at = mark.empty() ? id.npos : id.rfind(mark); at != id.npos) {
      weight = id.substr(at + mark.size());
      id = id.substr(0, at);
    }
    if (!id.empty()) add(id, weight);
    if (stop == field.npos) return;
    field.remove_prefix(stop + separator.size());
  }
}

}  // namespace trainer::records
