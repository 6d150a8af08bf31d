#include "train/ema.h"

#include <ATen/ATen.h>

namespace trainer::train {

Ema::Ema(const tensors::NamedTensors& parameters, double decay) : decay_(decay) {
  if (decay == 0) return;
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    parameters_.push_back(parameter);
    means_.push_back(parameter.detach().clone());
  }
}

tensors::NamedTensors Ema::state() const {
  tensors::NamedTensors state;
  for (size_t i = 0; i < means_.size(); ++i) state.emplace_back(names_[i], means_[i]);
  return state;
}

void Ema::update(const at::Tensor& skipped) {
  if (means_.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor weight = (1 - skipped) * (1 - decay_);
  for (size_t i = 0; i < means_.size(); ++i) means_[i].lerp_(parameters_[i], weight);
}

// Storages change places, nothing is copied.
void Ema::exchange() {
  for (size_t i = 0; i < means_.size(); ++i) {
    const at::Tensor weight = parameters_[i].detach().alias();
    parameters_[i].set_data(means_[i]);
    means_[i] = weight;
  }
}

}  // namespace trainer::train
