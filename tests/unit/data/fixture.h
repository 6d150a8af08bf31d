#pragma once

#include "temporary_directory.h"
#include "text/wordpiece/wordpiece.h"

namespace trainer::data::test {

// A tokenizer of one token a character, between 1 and 2: [1] text [2] pair [2], types as BERT's.
inline text::Encoding encode_characters(const text::TextPair& input) {
  text::Encoding encoding;
  const auto add = [&](int32_t id, int32_t type) {
    encoding.ids.push_back(id);
    encoding.token_types.push_back(type);
  };
  add(1, 0);
  for (const char c : input.text) add(c, 0);
  add(2, 0);
  if (!input.has_pair) return encoding;
  for (const char c : input.pair) add(c, 1);
  add(2, 1);
  return encoding;
}

}  // namespace trainer::data::test
