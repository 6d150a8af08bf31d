#pragma once

#include <ATen/core/Tensor.h>

namespace trainer::kernels {

// What linear_cross_entropy's forward makes.
struct LossAndGradients {
  at::Tensor loss;    // []
  at::Tensor dx, dw;  // undefined when not wanted
};
struct Wanted {
  bool dx, dw;
};

namespace composed {
LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted);
}
namespace fused {
LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted);
}

// As an autograd function of x and weight.
at::Tensor cross_entropy(decltype(composed::loss_and_gradients)* make, const at::Tensor& x,
                         const at::Tensor& weight, const at::Tensor& labels, int64_t vocab);

}  // namespace trainer::kernels
