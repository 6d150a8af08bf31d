#include "train/skipped_steps.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/log.h"

namespace trainer::train {

// In fp16 a skipped step is how the loss scale finds its value: abort counts only from the limit on.
SkippedSteps::SkippedSteps(const spec::Train& options, const c10::Device& device, bool is_main)
    : options_(options),
      is_main_(is_main),
      limit_(options.on_nonfinite == spec::NonFinite::kAbort && options.precision != spec::Precision::kFp16
                 ? 1
                 : options.max_skipped_steps),
      total_(at::zeros({}, at::dtype(at::kFloat).device(device))),
      in_a_row_(at::zeros_like(total_)),
      stopped_(at::zeros_like(total_)) {}

at::Tensor SkippedSteps::add(const at::Tensor& found_inf) {
  const at::Tensor skip = at::maximum(found_inf, stopped_);
  total_ += skip;
  in_a_row_ = (in_a_row_ + 1) * skip;
  stopped_ = (in_a_row_ >= static_cast<double>(limit_)).to(at::kFloat);
  return skip;
}

int64_t SkippedSteps::check(int64_t step, const at::Tensor& loss_scale) {
  const at::Tensor values = at::stack({total_, in_a_row_, loss_scale}).cpu();
  const auto value = [&](int64_t i) { return values[i].item<double>(); };
  const auto total = static_cast<int64_t>(value(0));
  const auto in_a_row = static_cast<int64_t>(value(1));
  if (total == seen_) return total;
  if (in_a_row >= limit_) {
    fail<NumericError>(
        "step {}: gradients were inf or NaN, {} step{} in a row ({}); the weights are those of step {}; "
        "hint: lower "
        "optimizer.lr{}",
        step, in_a_row, in_a_row == 1 ? "" : "s",
        limit_ == options_.max_skipped_steps ? fmt::format("train.max_skipped_steps {}", limit_)
                                             : "train.on_nonfinite is abort",
        step - in_a_row, options_.precision == spec::Precision::kFp16 ? ", or train in bf16" : "");
  }
  if (is_main_) {
    log_warning(
        "step {}: {} step{} skipped for inf or NaN gradients ({} so far){}", step, total - seen_,
        total - seen_ == 1 ? "" : "s", total,
        options_.precision == spec::Precision::kFp16 ? fmt::format("; loss scale was {}", value(2)) : "");
  }
  return seen_ = total;
}

tensors::NamedTensors SkippedSteps::state() {
  return {
      {"total", total_}, {"in_a_row", in_a_row_}, {"stopped", stopped_}, {"seen", tensors::view_of(seen_)}};
}

}  // namespace trainer::train
