// Peer of scripts/peers/tokenizer.py, bpe.py and tests/parity/compare_wordpiece.py: this program's tokenizers on
// lines of standard input, "hex(text)" or "hex(text)\thex(pair)".
//   tokenizer_bench encode DIRECTORY MAX_LENGTH             one JSON line a text: [ids, token types, offsets]
//   tokenizer_bench time DIRECTORY MAX_LENGTH THREADS RUNS  seconds of each encode_batch
//   tokenizer_bench bpe PATH THREADS RUNS                   the same for a language model's tokenizer, without pairs
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <deque>
#include <iostream>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "hardware/machine.h"
#include "text/tokenizer.h"
#include "text/wordpiece/wordpiece.h"

namespace {

using trainer::text::TextPair;

std::string unhex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return out;
}

int run_bpe(const std::vector<std::string>& args) {
  const auto tokenizer = trainer::text::load_tokenizer(trainer::spec::TokenizerType::kAuto, args.at(1));
  std::vector<std::string> storage;
  for (std::string line; std::getline(std::cin, line);) storage.push_back(unhex(line));
  const std::vector<std::string_view> texts(storage.begin(), storage.end());
  for (int run = std::stoi(args.at(3)); run > 0; --run) {
    const double start = trainer::monotonic_s();
    if (texts.size() == 1) {
      tokenizer->encode(texts[0], std::stoll(args.at(2)));
    } else {
      tokenizer->encode_batch(texts, std::stoll(args.at(2)));
    }
    fmt::print("{:.9f}\n", trainer::monotonic_s() - start);
  }
  return 0;
}

int run(const std::vector<std::string>& args) {
  if (args[0] == "bpe") return run_bpe(args);
  const auto tokenizer = trainer::text::WordPiece::load(args.at(1));
  trainer::text::EncodeOptions options;
  options.max_length = std::stoll(args.at(2));
  std::deque<std::string> storage;  // stable addresses
  std::vector<TextPair> inputs;
  for (std::string line; std::getline(std::cin, line);) {
    const size_t tab = line.find('\t');
    const std::string& text = storage.emplace_back(unhex(std::string_view(line).substr(0, tab)));
    inputs.push_back({text, {}, false});
    if (tab != std::string::npos) {
      inputs.back().pair = storage.emplace_back(unhex(std::string_view(line).substr(tab + 1)));
      inputs.back().has_pair = true;
    }
  }
  if (args[0] == "encode") {
    options.with_offsets = true;
    for (const auto& e : tokenizer.encode_batch(inputs, options, trainer::hardware::usable_cores())) {
      std::string offsets;
      for (const auto& [start, end] : e.offsets)
        offsets += fmt::format("{}[{},{}]", offsets.empty() ? "" : ",", start, end);
      fmt::print("[[{}],[{}],[{}]]\n", fmt::join(e.ids, ","), fmt::join(e.token_types, ","), offsets);
    }
    return 0;
  }
  for (int run = std::stoi(args.at(4)); run > 0; --run) {
    const double start = trainer::monotonic_s();
    const auto encodings = tokenizer.encode_batch(inputs, options, std::stoll(args.at(3)));
    fmt::print("{:.9f}\n", trainer::monotonic_s() - start);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr,
               "usage: tokenizer_bench encode DIRECTORY MAX_LENGTH | time DIRECTORY MAX_LENGTH THREADS RUNS "
               "| bpe PATH "
               "THREADS RUNS\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const trainer::Error& e) {
    fmt::print(stderr, "{}: {}\n", e.kind(), e.what());
    return static_cast<int>(e.code());
  }
}
