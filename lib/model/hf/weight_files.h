#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensors/safetensors.h"

namespace trainer::model {

using tensors::NamedTensors;
using tensors::SafetensorsFile;
using tensors::write_safetensors;

// The weights of a Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json
// names.
class WeightFiles {
 public:
  // Throws CheckpointError (with how to convert, when there is only a pytorch_model.bin), and SpecError when there is
  // none, or not each that the index names.
  explicit WeightFiles(const std::filesystem::path& directory);

  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const { return file_of_.contains(name); }
  at::Tensor tensor(const std::string& name) const { return files_[file_of_.at(name)].tensor(name); }

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace trainer::model
