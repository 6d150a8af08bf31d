#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tensors/named.h"

namespace trainer::train {

// Exponential moving average of the weights, in fp32 beside them: mean = decay mean + (1 - decay) weight after every
// optimizer step that was not skipped; it begins as the weights.
class Ema {
 public:
  // decay 0: none, and nothing is kept.
  Ema(const tensors::NamedTensors& parameters, double decay);
  // skipped: [] fp32, 1 where the optimizer changed nothing. No device sync.
  void update(const at::Tensor& skipped);

  // Views by parameter, in the order that the constructor was given.
  tensors::NamedTensors state() const;

  // While it lives the parameters have the means' values.
  class Applied {
   public:
    explicit Applied(Ema& ema) : ema_(ema) { ema_.exchange(); }
    ~Applied() { ema_.exchange(); }
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    Ema& ema_;
  };

 private:
  void exchange();

  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, means_;
  double decay_;
};

}  // namespace trainer::train
