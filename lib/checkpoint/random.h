#pragma once

#include <c10/core/Device.h>

#include "tensors/named.h"

namespace trainer::checkpoint {

// LibTorch's generators of the CPU and of `device`, by name: copies.
tensors::NamedTensors random_state(c10::Device device);
// `name`: one of random_state()'s.
void set_random_state(c10::Device device, const std::string& name, const at::Tensor& state);

}  // namespace trainer::checkpoint
