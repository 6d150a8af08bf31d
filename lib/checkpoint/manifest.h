#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensors/safetensors.h"

// What lies in a checkpoint's directory, <output_dir>/checkpoints/step_<n>:
//
//   model.safetensors, config.json, ...   the model as save_pretrained() writes it
//   optimizer.safetensors                 its state by parameter, with torch.optim's names
//   ema.safetensors                       the weights' running mean, where there is one
//   tables-<rank>-of-<ranks>.safetensors, tables.index.json    embedding tables and their state (tensors/slices.h)
//   progress.safetensors                  all else: counters, schedule, loss scale, place in the data, random generators
//   state.json                            the manifest, written last: the names, sizes and checksums of all the others

namespace trainer::checkpoint {

inline constexpr const char* kManifestFile = "state.json";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kEmaFile = "ema.safetensors";
inline constexpr const char* kProgressFile = "progress.safetensors";
inline constexpr const char* kTables = "tables";

struct Manifest {
  int64_t step = 0;  // optimizer steps done
  int64_t total_steps = 0;
  double epoch = 0;  // with a fraction
  int64_t world_size = 1;
  double unix_s = 0;                     // time of day
  std::string data_fingerprint;          // of the training data
  std::string job;                       // the resolved spec, as YAML
  std::map<std::string, double> values;  // single numbers of progress.safetensors, for people
  std::map<std::string, tensors::WrittenFile> files;

  int64_t size_bytes() const;  // of the files together
};

std::string to_json(const Manifest& manifest);
// Throws CheckpointError where there is no manifest or it is damaged.
Manifest read_manifest(const std::filesystem::path& directory);

// Reads the manifest and every file that it names; throws CheckpointError naming the first that is missing or not as it
// was written.
Manifest verify(const std::filesystem::path& directory);

// The checkpoints in a directory, by name: the last steps first.
std::vector<std::filesystem::path> list(const std::filesystem::path& directory);
std::string directory_name(int64_t step);                 // "step_<n>"
int64_t step_of(const std::filesystem::path& directory);  // -1: has no such name

}  // namespace trainer::checkpoint
