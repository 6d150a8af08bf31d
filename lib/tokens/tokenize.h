#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.h"
#include "tokens/source.h"
#include "tokens/token_stream.h"

namespace trainer::tokens {

struct TokenizeOptions {
  std::string field = "text";  // of JSON lines and Parquet
  bool append_eos = true;      // behind each document, where the tokenizer has an end-of-text token
  int64_t num_threads = 1;
};

// Where tokens go, in order.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void add(std::span<const int32_t> ids) = 0;
  virtual void end_document() = 0;  // of one or more tokens
};

struct TokenizeProgress {
  int64_t bytes_read = 0;  // of the files
  int64_t text_bytes = 0;
};

// Tokenizes text, JSON lines or Parquet, in memory that does not grow with the files, on all threads at once.
// Documents: a line of JSON, a row; a text file is one, or several where it has the tokenizer's end-of-text token
// in it ("<|endoftext|>"), which in JSON lines and Parquet is text like any other. Documents without a token don't
// count. `progress` may be empty; it may throw. Throws DataError that names file and line.
void tokenize(const Source& source, const text::Tokenizer& tokenizer, const TokenizeOptions& options,
              TokenSink& sink, const std::function<void(const TokenizeProgress&)>& progress);

// Every character of the source, once: what make_char_tokenizer() needs of it. Throws DataError when it has none.
std::string distinct_characters(const Source& source, const std::string& field, int64_t num_threads);

// Bytes of all files.
int64_t size_of(const Source& source);

// Changes with the bytes that the ids stand for.
uint64_t vocabulary_hash(const text::Tokenizer& tokenizer);

// The narrowest of uint16 and int32, as Megatron does.
TokenType type_for(int64_t vocab_size);
// Appends ids, which must fit, as they are in files.
void append_ids(std::span<const int32_t> ids, TokenType type, std::string& bytes);

// The largest text that is tokenized anew by every run.
inline constexpr int64_t kMostTextBytes = int64_t{1} << 30;

// The source's tokens in memory, as one part with its documents. Throws DataError when there is more text than `most`
// bytes: it says the `trainer prepare` that makes files of it.
TokenPart tokenize_in_memory(const Source& source, const std::string& path, const text::Tokenizer& tokenizer,
                             const TokenizeOptions& options, int64_t most = kMostTextBytes);

}  // namespace trainer::tokens
