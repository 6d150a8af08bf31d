#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trainer::tokens {

// How a file writes an id: Megatron's codes, and llm.c's uint32, which Megatron has none for. Little-endian.
enum class TokenType : uint8_t {
  kUint32 = 0,
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8
};
int64_t size_of(TokenType type);  // bytes

// Where documents begin, by number.
class Documents {
 public:
  virtual ~Documents() = default;
  virtual int64_t size() const = 0;
  // First token of document i, from 0 at the beginning of its part; ascending, equal where a document is empty.
  virtual int64_t start(int64_t i) const = 0;
};

// Documents whose starts are kept in memory.
class KeptDocuments final : public Documents {
 public:
  explicit KeptDocuments(std::vector<int64_t> starts) : starts_(std::move(starts)) {}
  int64_t size() const override { return static_cast<int64_t>(starts_.size()); }
  int64_t start(int64_t i) const override { return starts_[static_cast<size_t>(i)]; }

 private:
  std::vector<int64_t> starts_;
};

// Consecutive ids in memory, mapped or not: one file, say.
struct TokenPart {
  std::string name;  // for messages: the file
  std::shared_ptr<const void> owner;
  const void* ids = nullptr;
  TokenType type = TokenType::kUint16;
  int64_t size = 0;
  std::shared_ptr<const Documents> documents;  // null: not known
};

// One stream of token ids, whatever files it is in: random access, 64-bit positions. Read-only, so thread-safe.
class TokenStream {
 public:
  explicit TokenStream(std::vector<TokenPart> parts);

  int64_t size() const { return starts_.back(); }
  const std::vector<TokenPart>& parts() const { return parts_; }
  // Ids [begin, begin + count), all in the stream, as int64.
  void read(int64_t begin, int64_t count, int64_t* ids) const;
  // "file: token 5", from 0.
  std::string where(int64_t position) const;

  bool has_documents() const;  // of every part
  // Where documents begin in [begin, end): ascending, each place once; appended. Only when has_documents().
  void document_starts(int64_t begin, int64_t end, std::vector<int64_t>& starts) const;
  // Finds them where they are not known, by the token that stands at their ends, or at their beginnings. Reads
  // those parts once.
  void find_documents(int64_t delimiter, bool at_beginning, int64_t num_threads);

  // First position in [begin, end) whose id is not in 0 .. vocab_size - 1; -1: none.
  int64_t find_outside(int64_t begin, int64_t end, int64_t vocab_size, int64_t num_threads) const;
  // Changes with the stream: of its size and of ids spread over it. Reads a few MB at most.
  uint64_t fingerprint() const;

 private:
  size_t part_of(int64_t position) const;

  std::vector<TokenPart> parts_;
  std::vector<int64_t> starts_;  // of each part, then the size
};

// Where the last `fraction` of a stream begins, as training and validation part it: at token floor(n (1 - fraction)), or
// at the nearest beginning of a document where that changes the fraction by less than half. Throws DataError when one of
// them would be empty.
int64_t validation_begin(const TokenStream& stream, double fraction);

}  // namespace trainer::tokens
