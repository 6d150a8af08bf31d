#include "tokens/metadata.h"

#include <algorithm>
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
  std::string prefix = file.replace_extension("").string();
  constexpr size_t kShard = 6;  // _00000
  if (prefix.size() <= kShard || prefix[prefix.size() - kShard] != '_') return std::nullopt;
  if (!std::all_of(prefix.end() - kShard + 1, prefix.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  prefix.resize(prefix.size() - kShard);
  file = prefix + ".json";
  if (fs::exists(file)) return file;
  return std::nullopt;
}

}  // namespace

std::optional<Metadata> read_metadata(const fs::path& bin) {
  const std::optional<fs::path> file = find(bin);
  if (!file) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(*file));
    if (!json.is_object() || json.value("format", "") != kFormat) return std::nullopt;  // another program's
    Metadata metadata;
    metadata.vocab_size = json.at("vocab_size");
    metadata.num_tokens = json.at("tokens");
    metadata.num_documents = json.at("documents");
    metadata.sources = json.at("sources").get<std::vector<std::string>>();
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
