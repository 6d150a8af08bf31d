#pragma once

#include "kernels/ops.h"

// The operations of ops.h as compositions of ATen's: the path of CUDA, of dtypes that the CPU kernels don't
// have, and the reference of the tests.

namespace trainer::kernels::composed {

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout);
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu);
at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout);

}  // namespace trainer::kernels::composed
