#include "model/rope.h"

#include <torch/torch.h>

#include <cmath>

namespace trainer::model {
namespace {

// Llama 3.1: long wavelengths are stretched, short ones kept, those between interpolated.
at::Tensor llama3(const at::Tensor& frequencies, const RopeScaling& s) {
  const at::Tensor turns =
      frequencies * (s.original_max_positions / (2 * M_PI));  // in the first training's context
  const at::Tensor smooth =
      ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1);
  return (1 - smooth) * frequencies / s.factor + smooth * frequencies;
}

}  // namespace

at::Tensor rope_table(const GptConfig& config) {
  const at::Tensor exponents = at::arange(0, config.head_dim, 2).to(at::kFloat) / config.head_dim;
  at::Tensor frequencies = at::pow(config.rope_theta, exponents).reciprocal();
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == RopeScaling::Type::kLinear) frequencies = frequencies / scaling.factor;
  if (scaling.type == RopeScaling::Type::kLlama3) frequencies = llama3(frequencies, scaling);
  const at::Tensor angles = at::outer(at::arange(config.max_positions).to(at::kFloat), frequencies);
  return at::cat({angles.cos(), angles.sin()}, 1);
}

}  // namespace trainer::model
