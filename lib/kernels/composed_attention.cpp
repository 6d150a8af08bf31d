#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention_backend.h"
#include "kernels/composed.h"

namespace trainer::kernels {

at::Tensor rotate(const at::Tensor& x, const Rope& rope) {
  const int64_t half = x.size(2) / 2;
  const at::Tensor cos_sin = rope.cos_sin.index_select(0, rope.position_ids).unsqueeze(1);  // [N, 1, D]
  const at::Tensor cos = cos_sin.narrow(2, 0, half), sin = cos_sin.narrow(2, half, half);
  const at::Tensor first = x.narrow(2, 0, half), second = x.narrow(2, half, half);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, 2).to(x.scalar_type());
}

namespace composed {
namespace {

struct Sequences {
  const at::Tensor& cu_seqlens;
  const std::vector<int32_t>& lengths;
};

// Keys or values, their heads along `axis`, each as often as queries attend by it: for what knows no groups.
at::Tensor for_all_heads(const at::Tensor& x, int64_t axis, int64_t heads) {
  const int64_t group = heads / x.size(axis);
  if (group == 1) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin() + axis + 1, group);
  return x.unsqueeze(axis + 1).expand(sizes).flatten(axis, axis + 1);
}

bool is_half(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

// Of the backends in LibTorch's order (attention_backend.h) the first that takes sequences of different lengths at
// once; math: none before it.
at::SDPBackend packed_backend(const at::Tensor& q) {
  const auto channels = static_cast<size_t>(q.size(2));
  for (const at::SDPBackend backend : backend_order()) {
    const bool takes_them =
        backend == at::SDPBackend::flash_attention       ? is_half(q) && channels % 8 == 0 && channels <= 256
        : backend == at::SDPBackend::efficient_attention ? channels * q.element_size() % 16 == 0
                                                         : backend == at::SDPBackend::math;
    if (takes_them) return backend;
  }
  return at::SDPBackend::math;
}

// q [B, H, T, D], k and v [B, Hkv, T, D] -> [B, H, T, D]; row_keys [B T].
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal,
                  const at::Tensor& row_keys, const Dropout& dropout) {
  if (q.is_cuda()) {
    const auto order = backend_order();
    const bool groups = is_half(q) && (order.empty() || order[0] != at::SDPBackend::efficient_attention);
    const at::Tensor keys = groups ? k : for_all_heads(k, 1, q.size(1));
    const at::Tensor values = groups ? v : for_all_heads(v, 1, q.size(1));
    return at::scaled_dot_product_attention(q, keys, values, {}, dropout.p, is_causal, {},
                                            q.size(1) != keys.size(1));
  }
  if (dropout.p == 0) {
    return at::scaled_dot_product_attention(q, k, v, {}, dropout.p, is_causal, {}, q.size(1) != k.size(1));
  }
  const int64_t group = q.size(1) / k.size(1), length = q.size(2);
  at::Tensor scores = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(q.size(3)));  // [B, H, T, T]
  if (is_causal) scores = scores.masked_fill(at::ones({length, length}, at::kBool).triu(1), -INFINITY);
  std::vector<at::Tensor> factors;
  for (int64_t head = 0; head < q.size(1); ++head) {
    factors.push_back(dropout_factors(row_keys, dropout.site, static_cast<uint32_t>(head), length, dropout.p)
                          .view({q.size(0), length, length}));
  }
  const at::Tensor weights = at::softmax(scores, -1) * at::stack(factors, 1).to(q.scalar_type());
  return at::matmul(weights, v.repeat_interleave(group, 1));
}

// q [N, H, D], k and v [N, Hkv, D] -> [N, H D].
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const Sequences& sequences, bool is_causal, const Dropout& dropout) {
  const std::vector<int32_t>& lengths = sequences.lengths;
  if (lengths.empty()) return q.flatten(1).clone();
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const at::Tensor& starts = sequences.cu_seqlens;
  if (q.is_cuda() && *shortest != *longest) {
    switch (packed_backend(q)) {
      case at::SDPBackend::flash_attention:
        return std::get<0>(at::_flash_attention_forward(q, k, v, starts, starts, *longest, *longest,
                                                        dropout.p, is_causal, /*return_debug_mask=*/false))
            .flatten(1);
      case at::SDPBackend::efficient_attention:
        return std::get<0>(at::_efficient_attention_forward(
                               q.unsqueeze(0), for_all_heads(k, 1, q.size(1)).unsqueeze(0),
                               for_all_heads(v, 1, q.size(1)).unsqueeze(0), /*bias=*/{}, starts, starts,
                               *longest, *longest, dropout.p, /*custom_mask_type=*/is_causal ? 1 : 0,
                               /*compute_log_sumexp=*/true))
            .squeeze(0)
            .flatten(1);
      default:
        break;
    }
  }
  // Sequences of one length are a batch: SDPA chooses its backend.
  const auto count = static_cast<int64_t>(lengths.size());
  const int64_t batch = *shortest == *longest && *longest > 0 ? count : 1;
  std::vector<at::Tensor> outputs;
  int64_t start = 0;
  for (int64_t i = 0; i < count; i += batch) {
    const int64_t length = lengths[static_cast<size_t>(i)], rows = batch * length;
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, start, rows).unflatten(0, {batch, length}).transpose(1, 2);
    };
    const at::Tensor keys = dropout.p > 0 ? dropout.row_keys.narrow(0, start, rows) : at::Tensor();
    const at::Tensor out = attend(part(q), part(k), part(v), is_causal, keys, dropout);
    outputs.push_back(out.transpose(1, 2).reshape({rows, q.size(1) * q.size(2)}));
    start += rows;
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs);
}

}  // namespace

at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
  const auto parts = qkv.unflatten(1, {3, num_heads, qkv.size(1) / 3 / num_heads}).unbind(1);
  return attention(parts[0], parts[1], parts[2], {cu_seqlens, seqlens}, false, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, int64_t num_kv_heads,
                            const Rope& rope, const Dropout& dropout) {
  const int64_t num_all = num_heads + 2 * num_kv_heads;
  const at::Tensor heads = qkv.unflatten(1, {num_all, qkv.size(1) / num_all});
  at::Tensor q = heads.narrow(1, 0, num_heads), k = heads.narrow(1, num_heads, num_kv_heads);
  const at::Tensor v = heads.narrow(1, num_heads + num_kv_heads, num_kv_heads);
  if (rope.cos_sin.defined()) q = rotate(q, rope), k = rotate(k, rope);
  return attention(q, k, v, {cu_seqlens, seqlens}, true, dropout);
}

}  // namespace composed
}  // namespace trainer::kernels
