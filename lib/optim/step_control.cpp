#include "optim/step_control.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer::optim {

double learning_rate(const spec::Schedule& schedule, double lr, int64_t step, int64_t total_steps) {
  const double total = static_cast<double>(total_steps);
  const double warmup = schedule.warmup_steps > 0 ? static_cast<double>(schedule.warmup_steps)
                                                  : std::ceil(total * schedule.warmup_ratio);
  const double at = static_cast<double>(step);
  if (at < warmup) return lr * at / std::max(1.0, warmup);

  const double progress = std::min(1.0, (at - warmup) / std::max(1.0, total - warmup));
  const double floor = schedule.min_lr_ratio;
  const auto above_floor = [&](double factor) { return lr * (floor + (1.0 - floor) * factor); };
  switch (schedule.type) {
    case spec::ScheduleType::kConstant:
      break;
    case spec::ScheduleType::kLinear:
      return above_floor(1.0 - progress);
    case spec::ScheduleType::kCosine:
      return above_floor(0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    case spec::ScheduleType::kPolynomial:
      return above_floor(std::pow(1.0 - progress, schedule.power));
    case spec::ScheduleType::kInverseSqrt: {
      const double timescale = warmup > 0 ? warmup : 10000.0;  // as transformers
      return lr * std::max(floor, 1.0 / std::sqrt((at - warmup + timescale) / timescale));
    }
  }
  return lr;
}

StepControl::StepControl(const spec::Train& train, const spec::Schedule& schedule, double lr,
                         int64_t total_steps, const at::Device& device)
    : clip_(train.clip_grad_norm),
      scaling_(train.precision == spec::Precision::kFp16),
      options_(train.loss_scale) {
  std::vector<float> table;
  for (int64_t step = 0; step <= total_steps; ++step) {
    table.push_back(static_cast<float>(learning_rate(schedule, lr, step, total_steps)));
  }
  const auto fp32 = at::TensorOptions(at::kFloat).device(device);
  lr_table_ = at::tensor(table, at::kFloat).to(device);
  good_steps_ = at::zeros({1}, fp32.dtype(at::kLong));
  scale_ = at::full({}, scaling_ ? options_.initial : 1.0, fp32);
  growth_tracker_ = at::zeros({}, fp32.dtype(at::kInt));
}

at::Tensor StepControl::loss_factor(int64_t num_targets) const {
  return scale_ / static_cast<double>(num_targets);
}

StepResult StepControl::prepare(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> defined;
  for (const auto& g : gradients) {
    if (g.defined()) defined.push_back(g);
  }
  const at::Tensor norm = defined.empty() ? at::zeros_like(scale_)
                                          : at::linalg_vector_norm(at::stack(at::_foreach_norm(defined)));

  StepResult result;
  result.loss_scale = scale_.clone();  // which is updated below
  result.grad_norm = norm / result.loss_scale;
  // One inf or NaN anywhere makes the norm so; a norm that overflows is no step to take either.
  result.found_inf = at::isfinite(result.grad_norm).logical_not().to(at::kFloat);
  // torch.nn.utils.clip_grad_norm_'s factor min(1, clip / (norm + 1e-6)), inverted since it is divided by.
  result.grad_scale =
      clip_ > 0 ? result.loss_scale * ((result.grad_norm + 1e-6) / clip_).clamp_min(1.0) : result.loss_scale;
  result.lr = lr_table_.index_select(0, good_steps_).squeeze(0);

  good_steps_.add_((1 - result.found_inf).to(at::kLong)).clamp_max_(lr_table_.numel() - 1);
  if (scaling_) {
    at::_amp_update_scale_(scale_, growth_tracker_, result.found_inf, options_.growth_factor,
                           options_.backoff_factor, options_.growth_interval);
  }
  return result;
}

tensors::NamedTensors StepControl::state() {
  tensors::NamedTensors state{{"good_steps", good_steps_}};
  if (scaling_) {
    state.emplace_back("loss_scale", scale_);
    state.emplace_back("growth_tracker", growth_tracker_);
  }
  return state;
}

}  // namespace trainer::optim
