#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/job_spec.h"

namespace trainer::train {

// Counts the steps that inf or NaN gradients made the optimizer skip, on the device; the host reads them when
// it looks.
class SkippedSteps {
 public:
  SkippedSteps(const spec::Train& options, const c10::Device& device, bool is_main);
  // found_inf: [] fp32, of one step.
  void add(const at::Tensor& found_inf);
  // Waits for the device. Warns of steps skipped since the last look. Throws NumericError when there are any
  // and the job says abort, or as soon as max_skipped_steps of them came in a row. `step`, `loss_scale`: for
  // the message.
  int64_t check(int64_t step, const at::Tensor& loss_scale);

 private:
  const spec::Train& options_;
  bool is_main_;
  at::Tensor total_, in_a_row_;  // [] fp32
  int64_t seen_ = 0;
};

}  // namespace trainer::train
