#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/composed.h"

namespace trainer::kernels {

int64_t cross_entropy_rows(int64_t vocab_rows, bool is_cuda) {
  const int64_t floats = int64_t{1} << (is_cuda ? 27 : 24);
  return std::max<int64_t>(256, floats / vocab_rows);
}

namespace composed {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  // No value of a tensor decides anything: on CUDA nothing waits for the device.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t vocab, bool needs_dx, bool needs_dw) {
    const at::Tensor w = weight.to(x.scalar_type());
    const auto sum_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor loss = at::zeros({}, x.options().dtype(sum_type));
    const at::Tensor dx = needs_dx ? at::empty_like(x) : at::Tensor();
    const at::Tensor dw = needs_dw ? at::zeros_like(weight) : at::Tensor();
    const int64_t chunk = cross_entropy_rows(weight.size(0), x.is_cuda());
    for (int64_t start = 0; start < x.size(0); start += chunk) {
      const int64_t rows = std::min(chunk, x.size(0) - start);
      const at::Tensor xs = x.narrow(0, start, rows), wanted = labels.narrow(0, start, rows).unsqueeze(1);
      const at::Tensor is_label = wanted != kIgnoredLabel, index = wanted * is_label;  // ignored: 0, unused
      at::Tensor logits = at::mm(xs, w.t()).to(sum_type);                              // [R, V]
      logits.narrow(1, vocab, logits.size(1) - vocab).fill_(-INFINITY);
      const at::Tensor lse = logits.logsumexp(1, true);
      loss += ((lse - logits.gather(1, index)) * is_label).sum();
      if (!needs_dx && !needs_dw) continue;
      logits.sub_(lse).exp_().scatter_add_(1, index, at::full_like(lse, -1)).mul_(is_label);
      const at::Tensor dlogits = logits.to(x.scalar_type());
      if (needs_dx) dx.narrow(0, start, rows).copy_(at::mm(dlogits, w));
      if (needs_dw) dw.add_(at::mm(dlogits.t(), xs));
    }
    context->save_for_backward({dx, dw});
    return loss;
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

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t vocab) {
  const bool is_training = at::GradMode::is_enabled();
  return CrossEntropyFunction::apply(x, weight, labels, vocab, is_training && x.requires_grad(),
                                     is_training && weight.requires_grad());
}

}  // namespace composed
}  // namespace trainer::kernels
