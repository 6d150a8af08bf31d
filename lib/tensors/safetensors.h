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
#include "tensors/named.h"

// The safetensors format (https://github.com/huggingface/safetensors): an 8-byte little-endian header size, a
// JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes, row-major, without holes.

namespace trainer::tensors {

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

// What was written, for who must know later that it is still so.
struct WrittenFile {
  uint64_t size_bytes = 0;
  uint32_t crc32c = 0;
};

// Writes `tensors` (any device, any strides; names distinct) with __metadata__ {"format": "pt"}, data at a
// multiple of 64 bytes, wider types first so that each is aligned. Of what is not on the CPU or not contiguous, some MiB
// at a time are copied. Not atomic, not flushed to the disk. Throws CheckpointError.
WrittenFile write_safetensors(const std::filesystem::path& path, NamedTensors tensors);
const char* dtype_name(at::ScalarType type);  // "F32"; null when the format has none

}  // namespace trainer::tensors
