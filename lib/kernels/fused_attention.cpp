#include <torch/torch.h>

#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Heads {
  int64_t queries, keys;
  bool is_causal;
};

// Calls body(start, length, kv_head, scratch) for every key and value head of every sequence, the longest
// first so that threads end at the same time.
template <class Body>
void for_heads(const std::vector<int64_t>& seqlens, const Heads& heads, int64_t head_dim, const Body& body) {
  struct Sequence {
    int64_t start, length;
  };
  std::vector<Sequence> sequences;
  int64_t start = 0;
  for (const int64_t length : seqlens) {
    if (length > 0) sequences.push_back({start, length});
    start += length;
  }
  std::stable_sort(sequences.begin(), sequences.end(),
                   [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
  parallel_items(static_cast<int64_t>(sequences.size()) * heads.keys, [&](int64_t item) {
    const Sequence& sequence = sequences[static_cast<size_t>(item / heads.keys)];
    float* memory = scratch(kHead, cpu_kernels().attention_scratch(sequence.length, head_dim));
    body(sequence.start, sequence.length, item % heads.keys, memory);
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const std::vector<int64_t>& seqlens, const Heads& heads, const Rope& rope,
                            const Dropout& dropout) {
    const at::Tensor rows = qkv.stride(1) == 1 ? qkv : qkv.contiguous();
    const Rope with_rope =
        rope.cos_sin.defined() ? Rope{rope.cos_sin.contiguous(), rope.position_ids.contiguous()} : Rope{};
    const Dropout with = dense(dropout);
    const int64_t head_dim = qkv.size(1) / (heads.queries + 2 * heads.keys);
    at::Tensor out = at::empty({qkv.size(0), heads.queries * head_dim}, qkv.options());
    const at::Tensor lse = at::empty({qkv.size(0), heads.queries}, at::kFloat);
    with_type(qkv, [&]<class T>(T) {
      auto params = shared_params<T>(rows, lse, heads, with_rope, dropout_params(with));
      params.out = mutable_data<T>(out);
      for_heads(seqlens, heads, head_dim, [&](int64_t start, int64_t length, int64_t kv_head, float* memory) {
        cpu_kernels().of<T>().attention_forward(params, start, length, kv_head, memory);
      });
    });
    context->save_for_backward({rows, lse, with_rope.cos_sin, with_rope.position_ids, with.row_keys});
    context->saved_data["seqlens"] = seqlens;
    context->saved_data["queries"] = heads.queries;
    context->saved_data["keys"] = heads.keys;
    context->saved_data["is_causal"] = heads.is_causal;
    save_dropout(*context, with);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor dout = grads[0].contiguous(), dqkv = at::empty(qkv.sizes(), qkv.options());
    auto& data_of = context->saved_data;
    const Heads heads{data_of["queries"].toInt(), data_of["keys"].toInt(), data_of["is_causal"].toBool()};
    with_type(qkv, [&]<class T>(T) {
      auto params = shared_params<T>(qkv, saved[1], heads, {saved[2], saved[3]},
                                     dropout_params(saved_dropout(*context, saved[4])));
      params.dout = data<T>(dout);
      params.dqkv = mutable_data<T>(dqkv);
      for_heads(data_of["seqlens"].toIntVector(), heads, params.head_dim,
                [&](int64_t start, int64_t length, int64_t kv_head, float* memory) {
                  cpu_kernels().of<T>().attention_backward(params, start, length, kv_head, memory);
                });
    });
    return {dqkv, {}, {}, {}, {}};
  }

 private:
  template <class T>
  static AttentionParams<T> shared_params(const at::Tensor& qkv, const at::Tensor& lse, const Heads& heads,
                                          const Rope& rope, const DropoutParams& dropout) {
    AttentionParams<T> params{};
    params.num_heads = heads.queries;
    params.num_kv_heads = heads.keys;
    params.head_dim = qkv.size(1) / (heads.queries + 2 * heads.keys);
    params.is_causal = heads.is_causal;
    params.qkv = data<T>(qkv);
    params.qkv_stride = qkv.stride(0);
    params.cos_sin = data<float>(rope.cos_sin);
    params.position_ids = data<int64_t>(rope.position_ids);
    params.dropout = dropout;
    params.lse = mutable_data<float>(lse);
    return params;
  }
};

at::Tensor attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, const Heads& heads,
                     const Rope& rope, const Dropout& dropout) {
  return AttentionFunction::apply(qkv, std::vector<int64_t>(seqlens.begin(), seqlens.end()), heads, rope,
                                  dropout);
}

}  // namespace

at::Tensor varlen_attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, int64_t num_heads,
                            const Dropout& dropout) {
  return attention(qkv, seqlens, {num_heads, num_heads, false}, {}, dropout);
}

at::Tensor causal_attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, int64_t num_heads,
                            int64_t num_kv_heads, const Rope& rope, const Dropout& dropout) {
  return attention(qkv, seqlens, {num_heads, num_kv_heads, true}, rope, dropout);
}

}  // namespace trainer::kernels::fused
