#include "kernels/ops.h"

#include "kernels/composed.h"
#include "kernels/cross_entropy.h"
#include "kernels/fused.h"

namespace trainer::kernels {
namespace {

bool is_fusable(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// bf16 is multiplied by pairs.
bool is_even(int64_t n) {
  return n % 2 == 0;
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

std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout) {
  const bool fused = is_fusable(residual) && residual.scalar_type() == at::kFloat &&
                     (dtype == at::kFloat || dtype == at::kBFloat16) &&
                     (!x.defined() || x.scalar_type() == dtype);
  return (fused ? fused::dropout_add_norm : composed::dropout_add_norm)(x, residual, norm, dtype, dropout);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation) {
  // As decoding has: packing the weight would take longer than the product.
  constexpr int64_t kFewRows = 16;
  if (is_fusable(x) && weight.scalar_type() == at::kFloat && x.size(0) <= kFewRows &&
      !at::GradMode::is_enabled()) {
    return fused::linear_of_few_rows(x, weight, bias, activation);
  }
  const bool fused = is_fusable(x) && weight.scalar_type() == at::kFloat &&
                     (x.scalar_type() == at::kFloat || (is_even(weight.size(0)) && is_even(weight.size(1))));
  return (fused ? fused::linear : composed::linear)(x, weight, bias, activation);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  return (is_fusable(gate_up) ? fused::swiglu : composed::swiglu)(gate_up);
}

at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype) {
  const bool fused = embeddings.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16);
  return (fused ? fused::dot_interaction : composed::dot_interaction)(first, embeddings, dim, dtype);
}

at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
  if (is_fusable(qkv)) return fused::varlen_attention(qkv, seqlens, num_heads, dropout);
  return composed::varlen_attention(qkv, cu_seqlens, seqlens, num_heads, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, int64_t num_kv_heads,
                            const Rope& rope, const Dropout& dropout) {
  if (is_fusable(qkv)) {
    return fused::causal_attention(qkv, seqlens, num_heads, num_kv_heads, rope, dropout);
  }
  return composed::causal_attention(qkv, cu_seqlens, seqlens, num_heads, num_kv_heads, rope, dropout);
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t vocab) {
  const bool fused = is_fusable(x) && weight.scalar_type() == at::kFloat &&
                     (x.scalar_type() == at::kFloat || is_even(x.size(1)));
  return cross_entropy(fused ? fused::loss_and_gradients : composed::loss_and_gradients, x, weight, labels,
                       vocab);
}

}  // namespace trainer::kernels
