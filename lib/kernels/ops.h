#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

// Differentiable operations that LibTorch lacks or does slowly: fused CPU kernels (AVX-512, AVX2 or plain,
// chosen at run time), ATen compositions (and one CUDA kernel for dropout) on CUDA. N tokens, C channels, H
// heads, D = C / H channels a head, B sequences.

namespace trainer::kernels {

// Dropout by a counter-based generator: element (row, column) is kept by Philox4x32-10 of key row_keys[row]
// and counter (site, column); p is rounded to a multiple of 2^-16. No mask is stored; backward computes it
// again.
struct Dropout {
  double p = 0;         // 0: off, the rest is not read
  at::Tensor row_keys;  // [N] int64
  uint32_t site = 0;    // distinct for every use in a model
};

// layer_norm(dropout(x) + residual). x: [N, C] fp32, bf16 or fp16 (a linear layer's output); residual: [N, C]
// fp32; weight, bias: [C] fp32. Returns {y fp32 [N, C], y in x's dtype [N, C]}: the one is the next residual,
// the other the next linear layer's input; the same tensor when x is fp32.
std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout);

// dropout(x), x: [N, C].
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);

// x W^T + b with fp32 parameters, computed in x's dtype: [N, C_in], [C_out, C_in], [C_out] -> [N, C_out].
// `gelu`: followed by the exact (erf) GELU.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu = false);

// Self-attention within each sequence, not causal. qkv: [N, 3 C], the three side by side, each of H heads;
// cu_seqlens [B+1] int32 on qkv's device, seqlens the same on the host. softmax(q k^T / sqrt(D)), dropout on
// it, times v. Returns [N, C] in qkv's dtype. On CUDA in bf16 and fp16 the dropout is flash attention's own:
// drawn from the default CUDA generator, not from row_keys.
at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout);

}  // namespace trainer::kernels
