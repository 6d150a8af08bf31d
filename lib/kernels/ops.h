#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/activation.h"

// Differentiable operations that LibTorch lacks or does slowly: fused CPU kernels (AVX-512, AVX2 or plain,
// chosen at run time), ATen compositions (and one CUDA kernel for dropout) on CUDA. N tokens, C channels, H
// query heads, Hkv key and value heads, D channels a head, I intermediate channels, V rows of the vocabulary,
// B sequences.

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

struct Norm {
  at::Tensor weight, bias;  // [C] fp32; bias may be undefined
  double eps = 1e-5;
  bool rms = false;  // RMSNorm (Zhang and Sennrich, 2019): no mean, no bias
};

// A pre-norm block's step: h = residual + dropout(x) (x undefined: h = residual), y = norm(h). x: [N, C] fp32,
// bf16 or fp16; residual: [N, C] fp32. Returns {h fp32 [N, C], y in `dtype` [N, C]}.
std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout);

// dropout(x), x: [N, C].
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);

// activation(x W^T + b) with fp32 parameters, computed in x's dtype: [N, C_in], [C_out, C_in], [C_out] (or
// undefined: none) -> [N, C_out].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation = Activation::kNone);

// silu(gate) * up of gate_up [N, 2 I], the gate first (Shazeer, 2020) -> [N, I].
at::Tensor swiglu(const at::Tensor& gate_up);

// Dot products of all pairs of a record's vectors (DLRM: Naumov et al. 2019, arXiv:1906.00091): x_0 = first [B, D] (or undefined:
// none), then embeddings [B, F D], F vectors; both fp32. Returns [first | x_i . x_j for i > j, row by row] in `dtype`.
at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype);

// Self-attention within each sequence, not causal. qkv: [N, 3 C], the three side by side, each of H heads;
// cu_seqlens [B+1] int32 on qkv's device, seqlens the same on the host. softmax(q k^T / sqrt(D)), dropout on
// it, times v. Returns [N, C] in qkv's dtype. On CUDA by LibTorch's backends (attention_backend.h), and dropout is
// theirs: drawn from the default CUDA generator, not from row_keys.
at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout);

// Rotary position embedding (Su et al., 2021) in Hugging Face's arrangement: channel i < D / 2 of a head is
// rotated with channel i + D / 2.
struct Rope {
  at::Tensor cos_sin;       // [positions, D] fp32: cosines of the D / 2 angles, then sines; undefined: none
  at::Tensor position_ids;  // [N] int64: rows of cos_sin
};

// x [N, heads, D] rotated, in x's dtype: what a cache of keys holds. Not fused.
at::Tensor rotate(const at::Tensor& x, const Rope& rope);

// Causal self-attention within each sequence. qkv: [N, (H + 2 Hkv) D]: queries, keys, values; H a multiple of
// Hkv, and head h attends by key and value head h / (H / Hkv). Queries and keys are rotated by `rope`.
// cu_seqlens, seqlens, scale, dropout: as varlen_attention's. Returns [N, H D] in qkv's dtype.
at::Tensor causal_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, int64_t num_kv_heads,
                            const Rope& rope, const Dropout& dropout);

inline constexpr int64_t kIgnoredLabel = -100;

// The sum over rows of the cross-entropy of softmax(x W^T) at labels; rows of kIgnoredLabel count nothing. x:
// [N, C]; weight: [V, C] fp32, of which rows >= `vocab` are padding, no class; labels: [N] int64. Returns
// fp32 []. The gradients are made in forward, when they are needed, and scaled in place by backward, which
// therefore can't run twice. Logits never exist whole: chunks of R = cross_entropy_rows(V, device) rows are
// used up one after the other. The CPU kernels (fp32, bf16) throw DataError of a label that is no class.
// Beyond the gradients of x and weight at most 2 R V floats are allocated and, in bf16 and fp16, copies of
// weight and of its gradient.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t vocab);
int64_t cross_entropy_rows(int64_t vocab_rows, bool is_cuda);

}  // namespace trainer::kernels
