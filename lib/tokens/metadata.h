#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::tokens {

// What `trainer prepare` says of tokens that it wrote, in <prefix>.json.
struct Metadata {
  int64_t vocab_size = 0;  // every id is less
  // Of all shards together; for whoever reads the file: not read back.
  int64_t num_tokens = 0, num_documents = 0;
  std::vector<std::string> sources;
  std::string tokenizer;  // directory, relative to the file's
  std::string vocabulary_hash;
};

// What follows a prefix in the name of shard i: "_00000".
std::string shard_suffix(size_t i);
// A stem without it, where it has one.
std::string_view without_shard(std::string_view stem);

// <prefix>.json of <prefix>.bin, or of the shard <prefix>_00000.bin; a file without one was written by others. Throws
// DataError when it is not as prepare writes it.
std::optional<Metadata> read_metadata(const std::filesystem::path& bin);
// Throws DataError.
void write_metadata(const std::filesystem::path& file, const Metadata& metadata);

}  // namespace trainer::tokens
