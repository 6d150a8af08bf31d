#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace trainer::text {

// What a Hugging Face directory says about its byte-level BPE tokenizer.
struct BpeConfig {
  std::vector<std::pair<std::string, int32_t>> vocab;       // in the byte-level alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  PreTokenizer::Pattern pattern = PreTokenizer::kGpt2;
  bool add_prefix_space = false;
  bool ignore_merges = false;            // a word that is in the vocabulary is one token, whatever the merges
  std::vector<AddedToken> added_tokens;  // without ids, where the files give none
  std::string eos_token;                 // empty: none is named
  std::string bos_token;                 // that its template puts before a text; empty: none
  std::vector<TokenizerFile> files;      // as read; and a tokenizer_config.json
};

// From `path`: a directory, its tokenizer.json, or its vocab.json. Throws DataError naming the file, and the
// key in a JSON file, also for whatever would make other ids than the tokenizer here.
BpeConfig load_bpe_config(const std::filesystem::path& path);

}  // namespace trainer::text
