#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/hf/weight_files.h"
#include "text/tokenizer.h"

namespace trainer::model {

// Saved beside a model's weights.
using Files = std::vector<text::TokenizerFile>;

// transformers' own limit; a larger model is in shards with an index.
inline constexpr int64_t kMostShardBytes = 5'000'000'000;

// Writes a Hugging Face directory: config.json, the weights (model.safetensors, or
// model-00001-of-0000N.safetensors with model.safetensors.index.json), `files`. Not atomic. Throws
// CheckpointError.
void save_hf_directory(const std::filesystem::path& directory, const std::string& config_json,
                       const Files& files, const NamedTensors& weights,
                       int64_t most_shard_bytes = kMostShardBytes);

}  // namespace trainer::model
