#include "tokens/metadata.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "trainer tokens";

std::optional<fs::path> find(const fs::path& bin) {
  fs::path file = bin;
  if (fs::exists(file.replace_extension(".json"))) return file;
  file.replace_filename(std::string(without_shard(file.stem().string())) + ".json");
  if (fs::exists(file)) return file;
  return std::nullopt;
}

}  // namespace

std::string shard_suffix(size_t i) {
  return fmt::format("_{:05}", i);
}

std::string_view without_shard(std::string_view stem) {
  const size_t size = shard_suffix(0).size();
  if (stem.size() < size) return stem;
  const std::string_view end = stem.substr(stem.size() - size);
  const bool is_shard = end[0] == '_' && end.find_first_not_of("0123456789", 1) == std::string_view::npos;
  return is_shard ? stem.substr(0, stem.size() - size) : stem;
}

std::optional<Metadata> read_metadata(const fs::path& bin) {
  const std::optional<fs::path> file = find(bin);
  if (!file) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(*file));
    if (!json.is_object() || json.value("format", "") != kFormat) return std::nullopt;  // another program's
    Metadata metadata;
    metadata.vocab_size = json.at("vocab_size");
    metadata.tokenizer = json.at("tokenizer");
    metadata.vocabulary_hash = json.at("vocabulary_hash");
    return metadata;
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("{}: is not as trainer prepare writes it: {}", file->string(), error.what());
  }
}

void write_metadata(const fs::path& file, const Metadata& metadata) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["vocab_size"] = metadata.vocab_size;
  json["tokens"] = metadata.num_tokens;
  json["documents"] = metadata.num_documents;
  json["sources"] = metadata.sources;
  json["tokenizer"] = metadata.tokenizer;
  json["vocabulary_hash"] = metadata.vocabulary_hash;
  write_file_atomic(file, json.dump(2) + "\n");
}

}  // namespace trainer::tokens
