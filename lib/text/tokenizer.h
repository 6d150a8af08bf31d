#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::text {

// Special tokens that stand in a text, such as "<|endoftext|>": found, or text like any other (for documents
// that are not to be trusted with them).
enum class SpecialTokens { kFind, kIgnore };

struct TokenizerFile {
  std::string name, contents;
};

// A language model's tokenizer: bytes to ids and back. decode() is the exact inverse of encode() for any bytes,
// UTF-8 or not, but for two settings of a BPE vocabulary: add_prefix_space (the space stays), and added tokens
// that take the white space beside them. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // No special token is added. On `num_threads` >= 1 threads, with the same ids for any number. Throws
  // DataError with the place of what has no token (characters only).
  std::vector<int32_t> encode(std::string_view text, int64_t num_threads = 1,
                              SpecialTokens special = SpecialTokens::kFind) const;
  // The same ids by parts, in order, in memory that does not grow with the text: for mapped files. `take` also
  // gets how many bytes of the text are then done.
  void encode(std::string_view text, int64_t num_threads, SpecialTokens special,
              const std::function<void(std::span<const int32_t>, size_t)>& take) const;
  // In order; an error names the first failing text by its index.
  std::vector<std::vector<int32_t>> encode_batch(const std::vector<std::string_view>& texts,
                                                 int64_t num_threads,
                                                 SpecialTokens special = SpecialTokens::kFind) const;
  // Bytes; a caller that prints them while they come needs Utf8Stream. Throws DataError as token_bytes().
  std::string decode(std::span<const int32_t> ids) const;

  // The bytes that a token stands for; they live as long as the tokenizer. Throws DataError for an id that is
  // no token's.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  // The token that ends a document: for BPE the eos_token of tokenizer_config.json or special_tokens_map.json,
  // without these files "<|endoftext|>" or "<|end_of_text|>". Empty: there is none.
  virtual std::optional<int32_t> eos_id() const = 0;
  // The token that Hugging Face's tokenizer puts before a text (by the template in tokenizer.json), and encode() does
  // not. Empty: there is none.
  virtual std::optional<int32_t> bos_id() const { return std::nullopt; }
  // What a saved model's directory gets, so that load_tokenizer() and, for BPE, transformers' AutoTokenizer
  // load it from there.
  virtual std::vector<TokenizerFile> files() const = 0;

 protected:
  // A part of a text whose ids don't depend on the rest: one token (id >= 0), or text of bytes [begin, end).
  struct Segment {
    int32_t id;
    size_t begin, end;
    bool continues;  // the text of the segment before
  };
  // Encodes segments, on one thread.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    // Appends the ids of a segment of text.
    virtual void encode(std::string_view text, const Segment& segment, std::vector<int32_t>& ids) = 0;
  };
  // Covers `text`, in order. A segment of text ends at the first place after `max_bytes` where that changes no
  // id.
  virtual void segments(std::string_view text, SpecialTokens special, size_t max_bytes,
                        std::vector<Segment>& out) const = 0;
  // For texts of about `num_bytes` in all.
  virtual std::unique_ptr<Encoder> make_encoder(size_t num_bytes) const = 0;

  // The message of token_bytes().
  [[noreturn]] void fail_no_token(int32_t id) const;

 private:
  // Appends the ids of segments of `text`.
  static void encode_segments(std::string_view text, std::span<const Segment> segments, Encoder& encoder,
                              std::vector<int32_t>& ids);
  // Chunk by chunk, of which `round` are encoded before their ids are taken.
  void encode_parts(std::string_view text, int64_t num_threads, SpecialTokens special, size_t round,
                    const std::function<void(std::vector<int32_t>&&, size_t)>& take) const;
};

// Names of the files in `directory` that hold its tokenizer, of whatever type, WordPiece too; a saved model's directory
// gets a copy of each.
std::vector<std::string> tokenizer_files(const std::filesystem::path& directory);
// Whether there is one that load_tokenizer() takes.
bool has_tokenizer(const std::filesystem::path& directory);

// `path` is a directory, or one of its files: tokenizer.json, or vocab.json with merges.txt (BPE);
// trainer_tokenizer.json (characters, or bytes). kAuto tells by what is there. Throws DataError, and SpecError when
// there is no such path.
std::shared_ptr<const Tokenizer> load_tokenizer(spec::TokenizerType type, const std::filesystem::path& path);

// One token a code point, by the order of code points (as nanoGPT's character-level data sets). Encoding
// another character throws DataError with its place, and so does a text here that is not UTF-8.
std::shared_ptr<const Tokenizer> make_char_tokenizer(std::string_view training_text);
// 256 bytes, and id 256 to end documents if `with_eos`.
std::shared_ptr<const Tokenizer> make_byte_tokenizer(bool with_eos);

}  // namespace trainer::text
