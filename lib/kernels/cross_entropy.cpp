#include "kernels/cross_entropy.h"

#include <torch/torch.h>

#include <algorithm>

#include "kernels/ops.h"

namespace trainer::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t vocab, MakeLoss* make, Wanted wanted) {
    const LossAndGradients result = make(x, weight, labels, vocab, wanted);
    context->save_for_backward({result.dx, result.dw});
    return result.loss;
  }

  // In place, as the gradient of weight is the largest tensor of a step; autograd then refuses a second time.
  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(6);
    const auto saved = context->get_saved_variables();
    for (size_t i = 0; i < 2; ++i) {
      if (saved[i].defined()) result[i] = saved[i].mul_(grads[0]);
    }
    return result;
  }
};

}  // namespace

// job/gpt_cost.cpp foresees the memory of these.
int64_t cross_entropy_rows(int64_t vocab_rows, bool is_cuda) {
  const int64_t floats = int64_t{1} << (is_cuda ? 27 : 22);
  return std::max<int64_t>(256, floats / vocab_rows);
}

at::Tensor cross_entropy(MakeLoss* make, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& labels, int64_t vocab) {
  const bool is_training = at::GradMode::is_enabled();
  return CrossEntropyFunction::apply(
      x, weight, labels, vocab, make,
      Wanted{.dx = is_training && x.requires_grad(), .dw = is_training && weight.requires_grad()});
}

}  // namespace trainer::kernels
