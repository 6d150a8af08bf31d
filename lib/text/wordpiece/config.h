#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/wordpiece/normalizer.h"

namespace trainer::text {

// What a Hugging Face directory says about its BERT tokenizer.
struct WordPieceConfig {
  std::vector<std::pair<std::string, int32_t>> vocab;  // tokens and ids of the model, without added tokens
  std::string continuing_subword_prefix = "##";
  int64_t max_input_chars_per_word = 100;
  Normalizer normalizer;
  std::string unk_token = "[UNK]", cls_token = "[CLS]", sep_token = "[SEP]";
  std::vector<AddedToken> added_tokens;  // without ids, where the files give none
};

// Throws DataError naming the file, and the key in a JSON file.
WordPieceConfig load_wordpiece_config(const std::filesystem::path& directory);

}  // namespace trainer::text
