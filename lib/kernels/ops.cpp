#include "kernels/ops.h"

#include "kernels/composed.h"
#include "kernels/fused.h"

namespace trainer::kernels {
namespace {

bool is_fusable(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout) {
  return (is_fusable(x) ? fused::dropout_add_layer_norm : composed::dropout_add_layer_norm)(
      x, residual, weight, bias, eps, dropout);
}

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  return (is_fusable(x) ? fused::dropout : composed::dropout)(x, dropout);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu) {
  const bool pairs = weight.size(0) % 2 == 0 && weight.size(1) % 2 == 0;  // bf16 goes by pairs
  const bool fused =
      is_fusable(x) && weight.scalar_type() == at::kFloat && (x.scalar_type() == at::kFloat || pairs);
  return (fused ? fused::linear : composed::linear)(x, weight, bias, gelu);
}

at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
  if (is_fusable(qkv)) return fused::varlen_attention(qkv, seqlens, num_heads, dropout);
  return composed::varlen_attention(qkv, cu_seqlens, seqlens, num_heads, dropout);
}

}  // namespace trainer::kernels
