#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/job_spec.h"
#include "tensors/named.h"

namespace trainer::train {

// Counts the steps that inf or NaN gradients made the optimizer skip, on the device; the host reads them when it looks.
// Once they are too many (max_skipped_steps in a row, or one when the job says abort) every further step is skipped, so
// that the weights stay those of the last good step however late the host looks.
class SkippedSteps {
 public:
  SkippedSteps(const spec::Train& options, const c10::Device& device, bool is_main);
  // Before the optimizer. found_inf: [] fp32, 1 when this step's gradients are inf or NaN. Returns what the optimizer must
  // skip by.
  at::Tensor add(const at::Tensor& found_inf);
  // Waits for the device. Warns of steps skipped since the last look; returns how many they are in all. Throws
  // NumericError when they are too many. `step`, `loss_scale`: for the message.
  int64_t check(int64_t step, const at::Tensor& loss_scale);

  // Views.
  tensors::NamedTensors state();

 private:
  const spec::Train& options_;
  bool is_main_;
  int64_t limit_;                          // in a row
  at::Tensor total_, in_a_row_, stopped_;  // [] fp32
  int64_t seen_ = 0;
};

}  // namespace trainer::train
