#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::optim {

// Learning rate of optimizer step `step` (from 0; counts successful steps only) of `total_steps`, as transformers'
// get_*_schedule has it: warm-up from 0, then the schedule's form.
double learning_rate(const spec::Schedule& schedule, double lr, int64_t step, int64_t total_steps);

// What happens between backward and the optimizer, without a device sync: unscale by 1/(loss scale × global targets),
// global norm, clip, inf/NaN test. Order as in design §4 (5). All tensors are [] fp32 on the device.
struct StepResult {
  at::Tensor grad_norm;  // before clipping, of the unscaled gradients
  at::Tensor found_inf;  // 1 when any gradient of any rank is inf or NaN (gradients are already summed over ranks, so
                         // all ranks agree)
  at::Tensor lr;
  at::Tensor loss_scale;  // that this step was scaled by
};

class StepControl {
 public:
  StepControl(const spec::Train& train, const spec::Schedule& schedule, double lr, int64_t total_steps,
              const at::Device& device);
  // [] fp32: multiply the loss by it before backward.
  at::Tensor loss_scale() const { return scale_; }
  // Unscales and clips the gradients in place; advances schedule and loss scale. `num_targets`: [] fp32, over all ranks
  // and micro-batches.
  StepResult prepare(const std::vector<at::Tensor>& gradients, const at::Tensor& num_targets);

 private:
  double clip_;
  bool scaling_;
  spec::LossScale options_;
  at::Tensor scale_, growth_tracker_, lr_table_, good_steps_;
};

}  // namespace trainer::optim
