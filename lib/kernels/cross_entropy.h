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

// The work of linear_cross_entropy (ops.h): x [N, C], weight [V, C], labels [N] int64; dx and dw in the types of x and
// weight, both of a loss whose gradient is 1.
using MakeLoss = LossAndGradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                  int64_t vocab, Wanted wanted);

namespace composed {
// Any device and dtype. Labels are not checked, as on CUDA that would wait for the device.
LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted);
}  // namespace composed
namespace fused {
// On the CPU; x fp32 or bf16 (then C must be even), weight fp32. Throws DataError of a label that is no class.
LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted);
}  // namespace fused

// As an autograd function of x and weight.
at::Tensor cross_entropy(MakeLoss* make, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& labels, int64_t vocab);

}  // namespace trainer::kernels
