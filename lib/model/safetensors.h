#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"

// The safetensors format (https://github.com/huggingface/safetensors): an 8-byte little-endian header size, a
// JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes, row-major, without holes.

namespace trainer::model {

struct TensorInfo {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;  // bytes in the data part
};

// One file, memory-mapped. The header is checked whole when opened, so that reading a tensor cannot fail.
class SafetensorsFile {
 public:
  // Throws DataError when it cannot be opened, CheckpointError naming file and tensor when it is malformed.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  // A CPU tensor on the mapped bytes: not to be written to. It keeps the mapping alive. `name` is one of
  // tensors().
  at::Tensor tensor(const std::string& name) const;

 private:
  std::shared_ptr<MappedFile> file_;
  size_t data_start_ = 0;
  std::map<std::string, TensorInfo> tensors_;
};

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

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes `tensors` (any device, any strides; names distinct) with __metadata__ {"format": "pt"}, data at a
// multiple of 64 bytes, wider types first so that each is aligned. Not atomic. Throws CheckpointError.
void write_safetensors(const std::filesystem::path& path, NamedTensors tensors);

}  // namespace trainer::model
