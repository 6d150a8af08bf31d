#include "kernels/ops.h"

#include "kernels/composed.h"

namespace trainer::kernels {

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout) {
  return composed::dropout_add_layer_norm(x, residual, weight, bias, eps, dropout);
}

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  return composed::dropout(x, dropout);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu) {
  return composed::linear(x, weight, bias, gelu);
}

at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
  return composed::varlen_attention(qkv, cu_seqlens, seqlens, num_heads, dropout);
}

}  // namespace trainer::kernels
