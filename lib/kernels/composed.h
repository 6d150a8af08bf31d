#pragma once

#include "kernels/ops.h"

// The operations of ops.h as compositions of ATen's: the path of CUDA, of dtypes that the CPU kernels don't
// have, and the reference of the tests.

namespace trainer::kernels::composed {

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout);
std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout);
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation = Activation::kNone);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype);
at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, int64_t num_kv_heads,
                            const Rope& rope, const Dropout& dropout);
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t vocab);

// 0 or the scale for rows of these keys: [rows, columns] fp32 on CPU.
at::Tensor dropout_factors(const at::Tensor& row_keys, uint32_t site, uint32_t head, int64_t columns,
                           double p);

}  // namespace trainer::kernels::composed
