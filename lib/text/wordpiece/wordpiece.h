#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::text {

// One encoded text or pair, as Hugging Face BertTokenizerFast gives it without padding.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> token_types;
  // [start, end) of each token in its own text, in Unicode code points; {0, 0} for special tokens.
  std::vector<std::pair<int32_t, int32_t>> offsets;
};

struct EncodeOptions {
  int64_t max_length = 512;  // special tokens included
  spec::Truncation truncation = spec::Truncation::kLongestFirst;
  bool with_offsets = false;
};

struct TextPair {
  std::string_view text;
  std::string_view pair;
  bool has_pair = false;  // an empty second text is still a pair
};

// BERT's tokenizer: normalization (clean, CJK spacing, NFD accent stripping, lower case), pre-tokenization on
// whitespace and punctuation, greedy longest-match-first WordPiece. Thread-safe once built.
class WordPiece {
 public:
  // From a Hugging Face directory: tokenizer.json, or vocab.txt; then tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json where they exist, with the precedence of
  // BertTokenizerFast.from_pretrained. Throws DataError.
  static WordPiece load(const std::filesystem::path& directory);
  WordPiece(WordPiece&&) noexcept;
  ~WordPiece();

  // The texts are UTF-8; ill-formed bytes count as U+FFFD, as Python's errors="replace". Throws DataError
  // when the truncation strategy cannot reach max_length.
  Encoding encode(const TextPair& input, const EncodeOptions& options) const;
  // In order, on `num_threads` >= 1 threads. An error names the first failing text by its index.
  std::vector<Encoding> encode_batch(const std::vector<TextPair>& inputs, const EncodeOptions& options,
                                     int64_t num_threads) const;
  // One more than the largest id, added tokens included.
  int64_t vocab_size() const;

 private:
  struct Impl;
  explicit WordPiece(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainer::text
