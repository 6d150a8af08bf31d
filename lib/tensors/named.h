#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainer::tensors {

// What an object's state() gives is made of views: saving reads them, loading fills them in place.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// [] views of numbers on the host, which must outlive them.
inline at::Tensor view_of(int64_t& value) {
  return at::from_blob(&value, {}, at::kLong);
}
inline at::Tensor view_of(double& value) {
  return at::from_blob(&value, {}, at::kDouble);
}
inline at::Tensor view_of(bool& value) {
  return at::from_blob(&value, {}, at::kBool);
}

// Adds `from` as "<prefix>.<name>".
inline void append(NamedTensors& to, const std::string& prefix, const NamedTensors& from) {
  for (const auto& [name, tensor] : from) to.emplace_back(prefix + "." + name, tensor);
}

}  // namespace trainer::tensors
