#include <torch/torch.h>

#include <cmath>

#include "kernels/composed.h"
#include "kernels/cross_entropy.h"

namespace trainer::kernels::composed {

// No value of a tensor decides anything: on CUDA nothing waits for the device.
LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted) {
  const at::Tensor w = weight.to(x.scalar_type());
  const auto sum_type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  LossAndGradients result{.loss = at::zeros({}, x.options().dtype(sum_type)),
                          .dx = wanted.dx ? at::empty_like(x) : at::Tensor(),
                          .dw = wanted.dw ? at::zeros_like(weight) : at::Tensor()};
  const int64_t chunk = cross_entropy_rows(weight.size(0), x.is_cuda());
  for (int64_t start = 0; start < x.size(0); start += chunk) {
    const int64_t rows = std::min(chunk, x.size(0) - start);
    const at::Tensor xs = x.narrow(0, start, rows), label = labels.narrow(0, start, rows).unsqueeze(1);
    const at::Tensor is_label = label != kIgnoredLabel, index = label * is_label;  // ignored: 0, unused
    at::Tensor logits = at::mm(xs, w.t()).to(sum_type);                            // [R, V]
    logits.narrow(1, vocab, logits.size(1) - vocab).fill_(-INFINITY);
    const at::Tensor lse = logits.logsumexp(1, true);
    result.loss += ((lse - logits.gather(1, index)) * is_label).sum();
    if (!wanted.dx && !wanted.dw) continue;
    logits.sub_(lse).exp_().scatter_add_(1, index, at::full_like(lse, -1)).mul_(is_label);
    const at::Tensor dlogits = logits.to(x.scalar_type());
    if (wanted.dx) result.dx.narrow(0, start, rows).copy_(at::mm(dlogits, w));
    if (wanted.dw) result.dw.add_(at::mm(dlogits.t(), xs));
  }
  return result;
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t vocab) {
  return cross_entropy(loss_and_gradients, x, weight, labels, vocab);
}

}  // namespace trainer::kernels::composed
