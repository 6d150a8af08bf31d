#include "train/skipped_steps.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/log.h"

namespace trainer::train {

SkippedSteps::SkippedSteps(const spec::Train& options, const c10::Device& device, bool is_main)
    : options_(options),
      is_main_(is_main),
      total_(at::zeros({}, at::dtype(at::kFloat).device(device))),
      in_a_row_(at::zeros_like(total_)) {}

void SkippedSteps::add(const at::Tensor& found_inf) {
  total_ += found_inf;
  in_a_row_ = (in_a_row_ + 1) * found_inf;
}

int64_t SkippedSteps::check(int64_t step, const at::Tensor& loss_scale) {
  const at::Tensor values = at::stack({total_, in_a_row_, loss_scale}).cpu();
  const auto value = [&](int64_t i) { return values[i].item<double>(); };
  const auto total = static_cast<int64_t>(value(0));
  const auto in_a_row = static_cast<int64_t>(value(1));
  if (total == seen_) return total;
  const bool fp16 = options_.precision == spec::Precision::kFp16;
  if (options_.on_nonfinite == spec::NonFinite::kAbort && !fp16) {
    fail<NumericError>(
        "step {}: a gradient is inf or NaN, and train.on_nonfinite is abort; the weights are those of the "
        "step before; "
        "hint: lower optimizer.lr, or set train.clip_grad_norm",
        step);
  }
  if (in_a_row >= options_.max_skipped_steps) {
    fail<NumericError>(
        "step {}: gradients were inf or NaN in {} steps in a row (train.max_skipped_steps {}); the weights "
        "are those of "
        "the last good step; hint: lower optimizer.lr, or use precision bf16 instead of fp16",
        step, in_a_row, options_.max_skipped_steps);
  }
  if (is_main_) {
    log_warning("step {}: {} step{} skipped for inf or NaN gradients ({} so far){}", step, total - seen_,
                total - seen_ == 1 ? "" : "s", total,
                fp16 ? fmt::format("; loss scale was {}", value(2)) : "");
  }
  return seen_ = total;
}

}  // namespace trainer::train
