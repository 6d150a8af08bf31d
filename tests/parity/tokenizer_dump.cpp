// Peer of bpe_parity.py: language models' tokenizers on lines of standard input, each the hexadecimal bytes of a
// text; a JSON list a line.
//   tokenizer_dump ids PATH [ignore-special]   [whether decoding gives the text back, its ids]
//   tokenizer_dump words REGEX                 ends of its words, in bytes
//   tokenizer_dump time PATH                   seconds for each text
//   tokenizer_dump save PATH DIRECTORY         the files of a saved model
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace {

namespace text = trainer::text;

std::string unhex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return out;
}

void print_words(const std::string& regex) {
  const text::PreTokenizer words(text::PreTokenizer::find_pattern(regex, "argument"));
  for (std::string line; std::getline(std::cin, line);) {
    const std::string s = unhex(line);
    std::vector<size_t> ends;
    for (size_t i = 0; i < s.size(); ends.push_back(i)) i = words.word_end(s, i);
    fmt::print("[{}]\n", fmt::join(ends, ","));
  }
}

void run(const std::vector<std::string>& args) {
  if (args[0] == "words") return print_words(args.at(1));
  const auto tokenizer = text::load_tokenizer(trainer::spec::TokenizerType::kAuto, args.at(1));
  if (args[0] == "save") {
    for (const auto& [name, contents] : tokenizer->files())
      trainer::write_file_atomic(std::filesystem::path(args.at(2)) / name, contents);
    return;
  }
  const auto special = args.size() > 2 ? text::SpecialTokens::kIgnore : text::SpecialTokens::kFind;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string s = unhex(line);
    const double start = trainer::monotonic_s();
    const std::vector<int32_t> ids = tokenizer->encode(s, 1, special);
    if (args[0] == "time") {
      fmt::print("{:.9f}\n", trainer::monotonic_s() - start);
      continue;
    }
    fmt::print("[{},[{}]]\n", tokenizer->decode(ids) == s ? 1 : 0, fmt::join(ids, ","));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr,
               "usage: tokenizer_dump ids|time PATH [ignore-special] | save PATH DIRECTORY | words REGEX\n");
    return 2;
  }
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const trainer::Error& e) {
    fmt::print(stderr, "{}: {}\n", e.kind(), e.what());
    return static_cast<int>(e.code());
  }
}
