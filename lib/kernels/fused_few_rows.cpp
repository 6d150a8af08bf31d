#include <ATen/ATen.h>

#include "core/math.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {

at::Tensor linear_of_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              Activation activation) {
  constexpr int64_t kColumns = 32;  // of a work item: their weights stay in the L2 cache for the next rows
  const at::Tensor dense = x.contiguous(), w = weight.contiguous();
  const at::Tensor b = bias.defined() ? bias.contiguous() : at::Tensor();
  const int64_t n = w.size(0);
  const at::Tensor y = at::empty({x.size(0), n}, at::kFloat);
  with_type(x, [&]<class T>(T) {
    const FewRowsParams<T> params{.m = x.size(0),
                                  .n = n,
                                  .k = w.size(1),
                                  .x = data<T>(dense),
                                  .weight = data<float>(w),
                                  .bias = data<float>(b),
                                  .y = mutable_data<float>(y)};
    parallel_items(ceil_div(n, kColumns), [&](int64_t i) {
      cpu_kernels().of<T>().multiply_few_rows(params, i * kColumns, std::min(n, (i + 1) * kColumns));
    });
  });
  if (activation == Activation::kNone) return y.to(x.scalar_type());
  if (activation == Activation::kRelu) return at::relu(y).to(x.scalar_type());
  return at::gelu(y, activation == Activation::kGeluTanh ? "tanh" : "none").to(x.scalar_type());
}

}  // namespace trainer::kernels::fused
