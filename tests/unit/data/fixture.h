#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "text/wordpiece.h"

namespace trainer::data::test {

// A directory of its own, removed at the end.
struct TemporaryDirectory {
  std::filesystem::path path;
  TemporaryDirectory() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("trainer_data_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string write(const std::string& name, std::string_view text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return (path / name).string();
  }
};

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
