#include "model/hf/directory.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fail<CheckpointError>("{}: cannot write: {}", path.string(), std::strerror(errno));
}

int64_t size_bytes(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// In order, each as full as its tensors allow.
std::vector<NamedTensors> shards_of(const NamedTensors& weights, int64_t most_bytes) {
  std::vector<NamedTensors> shards(1);
  int64_t bytes = 0;
  for (const auto& weight : weights) {
    const auto size = static_cast<int64_t>(weight.second.nbytes());
    if (!shards.back().empty() && bytes + size > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += size;
    shards.back().push_back(weight);
  }
  return shards;
}

void write_weights(const fs::path& directory, const NamedTensors& weights, int64_t most_shard_bytes) {
  const auto shards = shards_of(weights, most_shard_bytes);
  if (shards.size() == 1) {
    write_safetensors(directory / "model.safetensors", weights);
    return;
  }
  nlohmann::ordered_json index{{"metadata", {{"total_size", size_bytes(weights)}}}};
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(directory / file, shards[i]);
    for (const auto& [name, tensor] : shards[i]) index["weight_map"][name] = file;
  }
  write_text(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

void save_hf_directory(const fs::path& directory, const std::string& config_json, const Files& files,
                       const NamedTensors& weights, int64_t most_shard_bytes) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail<CheckpointError>("{}: cannot create: {}", directory.string(), error.message());
  write_text(directory / "config.json", config_json);
  for (const auto& [name, contents] : files) write_text(directory / name, contents);
  write_weights(directory, weights, most_shard_bytes);
}

}  // namespace trainer::model
