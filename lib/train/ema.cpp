#include "train/ema.h"

#include <ATen/ATen.h>

namespace trainer::train {

Ema::Ema(std::vector<at::Tensor> parameters, double decay) : decay_(decay) {
  if (decay == 0) return;
  parameters_ = std::move(parameters);
  for (const at::Tensor& parameter : parameters_) means_.push_back(parameter.detach().clone());
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
