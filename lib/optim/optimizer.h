#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::optim {

struct ParameterGroup {
  std::string name;  // "decay", "no_decay"
  double weight_decay = 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;  // fp32
};

// Updates parameters from their .grad. All state lives on the parameters' device; no call waits for the device.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // `lr`: [] fp32, on the device. `found_inf`: [] fp32; where it is not 0 nothing changes, step counts included.
  virtual void step(const at::Tensor& lr, const at::Tensor& found_inf) = 0;
  // Bytes of state held.
  virtual int64_t state_bytes() const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const spec::Optimizer& options, std::vector<ParameterGroup> groups);

}  // namespace trainer::optim
