#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "spec/job_spec.h"
#include "tensors/named.h"

namespace trainer::optim {

struct ParameterGroup {
  std::string name;  // "decay", "no_decay"
  double weight_decay = 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;  // fp32
};

// Updates parameters from their .grad, with the formulas of torch.optim. All state lives on the parameters'
// device; no call waits for the device. A parameter without a gradient is left as it is.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // All are [] fp32 on the device, as StepControl::prepare gives them. Gradients are divided by `grad_scale`
  // on the way (and hold the divided values afterwards). `found_inf` is 0 or 1; where it is 1 nothing
  // changes, step counts included.
  virtual void step(const at::Tensor& lr, const at::Tensor& grad_scale, const at::Tensor& found_inf) = 0;
  // By parameter and by torch.optim's name, such as "head.weight.exp_avg": views.
  virtual tensors::NamedTensors state() = 0;
  // Bytes of state held.
  virtual int64_t state_bytes() const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const spec::Optimizer& options, std::vector<ParameterGroup> groups);

}  // namespace trainer::optim
