#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/file.h"
#include "tokens/token_stream.h"

// Megatron-LM's indexed dataset: <prefix>.bin has the ids and nothing else, <prefix>.idx says what they are. The
// index, little-endian (megatron/core/datasets/indexed_dataset.py):
//   "MMIDIDX\0\0", uint64 version 1, uint8 type, uint64 S sequences, uint64 E entries of documents;
//   int32 [S] length of each sequence in tokens; int64 [S] where each begins in the .bin in bytes;
//   int64 [E] the sequence that each document begins with, then S.

namespace trainer::tokens {

// The memory-mapped index of one .bin file. Documents are as it says.
class MegatronIndex final : public Documents {
 public:
  // Reads all of it once. Throws DataError: not an index, truncated, or sequences not one behind the other.
  explicit MegatronIndex(const std::filesystem::path& path);

  TokenType type() const { return type_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t size() const override { return num_documents_; }
  int64_t start(int64_t i) const override;

 private:
  template <class T>
  T at(size_t offset) const;
  int64_t document(int64_t i) const;  // entry i

  std::string path_;
  MappedFile file_;
  TokenType type_ = TokenType::kUint16;
  int64_t num_sequences_ = 0, num_documents_ = 0, num_tokens_ = 0;
  size_t pointers_ = 0, documents_ = 0;  // offsets in the file
};

// Opens <prefix>.bin by its index beside it. Throws DataError, also when the size is not what the index says.
TokenPart open_megatron(const std::filesystem::path& bin);

// Writes an index: a document is a sequence, or several where it has more than 2^31 - 1 tokens. Throws DataError.
void write_megatron_index(const std::filesystem::path& path, TokenType type,
                          std::span<const int64_t> document_lengths);

}  // namespace trainer::tokens
