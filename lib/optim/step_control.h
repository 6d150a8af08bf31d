#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/job_spec.h"
#include "tensors/named.h"

namespace trainer::optim {

// Learning rate of optimizer step `step` (from 0; counts successful steps only) of `total_steps`, as
// transformers' get_*_schedule_with_warmup has it: warm-up from 0, then the schedule's form, down to
// min_lr_ratio × lr.
double learning_rate(const spec::Schedule& schedule, double lr, int64_t step, int64_t total_steps);

// What the optimizer needs to take a step. All are [] fp32 on the device.
struct StepResult {
  at::Tensor grad_norm;   // of the unscaled gradients, before clipping
  at::Tensor found_inf;   // 1 when it is inf or NaN, else 0; gradients are summed over ranks before, so all
                          // ranks agree
  at::Tensor grad_scale;  // the optimizer divides gradients by it: unscales and clips
  at::Tensor lr;
  at::Tensor loss_scale;  // that this step was scaled by
};

// What happens between backward and the optimizer (design §4, 5), without a device sync and with one pass
// over the gradients, the norm: unscaling by 1/(loss scale) and clipping ride on the optimizer's own pass.
class StepControl {
 public:
  StepControl(const spec::Train& train, const spec::Schedule& schedule, double lr, int64_t total_steps,
              const at::Device& device);
  // [] fp32: multiply the sum of the loss by it before backward. `num_targets`: over all ranks and
  // micro-batches of the step, at least 1; so gradients are scaled means, the range that a loss scale is for.
  at::Tensor loss_factor(int64_t num_targets) const;
  // Reads the gradients of that loss (undefined ones are passed over), advances schedule and loss scale.
  StepResult prepare(const std::vector<at::Tensor>& gradients);

  // Views: where in the schedule, and the loss scale.
  tensors::NamedTensors state();

 private:
  double clip_;
  bool scaling_;  // fp16 only; else the scale stays 1
  spec::LossScale options_;
  at::Tensor scale_;           // [] fp32
  at::Tensor growth_tracker_;  // [] int32, good steps since the scale last changed
  at::Tensor lr_table_;        // [total_steps + 1] fp32
  at::Tensor good_steps_;      // [1] int64
};

}  // namespace trainer::optim
