#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainer::text {

// A character of normalized text and the code points [start, end) of the original text that it stands for.
struct Char {
  char32_t c;
  int32_t start, end;
};

// Hugging Face's BertNormalizer.
struct Normalizer {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  // empty: as lowercase
  bool lowercase = true;

  bool strips_accents() const { return strip_accents.value_or(lowercase); }
  // In place.
  void normalize(std::vector<Char>& text) const;
};

}  // namespace trainer::text
