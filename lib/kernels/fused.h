#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/ops.h"

// The operations of ops.h by the CPU kernels: autograd functions for fp32 and bf16 tensors on the CPU, over
// the tables of cpu/kernels.h.

namespace trainer::kernels::fused {

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout);
// x in `dtype`.
std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout);
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);
// bf16: C_in and C_out must be even.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation);
// Without a gradient, in the time that reading the weight takes; rounded to x's type at the end only.
at::Tensor linear_of_few_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              Activation activation);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype);
at::Tensor varlen_attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, int64_t num_heads,
                            const Dropout& dropout);
at::Tensor causal_attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, int64_t num_heads,
                            int64_t num_kv_heads, const Rope& rope, const Dropout& dropout);

}  // namespace trainer::kernels::fused
