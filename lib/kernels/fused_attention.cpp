#include <torch/torch.h>

#include <numeric>

#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(start, length, head, scratch) for every head of every sequence, the longest first so that
// threads end at the same time.
template <class Body>
void for_heads(const std::vector<int64_t>& seqlens, int64_t num_heads, int64_t head_dim, const Body& body) {
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
  parallel_items(static_cast<int64_t>(sequences.size()) * num_heads, [&](int64_t item) {
    const Sequence& sequence = sequences[static_cast<size_t>(item / num_heads)];
    float* memory = scratch(kHead, cpu_kernels().attention_scratch(sequence.length, head_dim));
    body(sequence.start, sequence.length, item % num_heads, memory);
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const std::vector<int64_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
    const at::Tensor rows = qkv.stride(1) == 1 ? qkv : qkv.contiguous();
    const Dropout with = dense(dropout);
    at::Tensor out = at::empty({qkv.size(0), qkv.size(1) / 3}, qkv.options());
    const at::Tensor lse = at::empty({qkv.size(0), num_heads}, at::kFloat);
    with_type(qkv, [&]<class T>(T) {
      auto params = shared_params<T>(rows, lse, num_heads, dropout_params(with));
      params.out = mutable_data<T>(out);
      for_heads(seqlens, num_heads, params.head_dim,
                [&](int64_t start, int64_t length, int64_t head, float* memory) {
                  cpu_kernels().of<T>().attention_forward(params, start, length, head, memory);
                });
    });
    context->save_for_backward({rows, lse, with.row_keys});
    context->saved_data["seqlens"] = seqlens;
    context->saved_data["num_heads"] = num_heads;
    save_dropout(*context, with);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor dout = grads[0].contiguous(), dqkv = at::empty(qkv.sizes(), qkv.options());
    const int64_t num_heads = context->saved_data["num_heads"].toInt();
    with_type(qkv, [&]<class T>(T) {
      auto params =
          shared_params<T>(qkv, saved[1], num_heads, dropout_params(saved_dropout(*context, saved[2])));
      params.dout = data<T>(dout);
      params.dqkv = mutable_data<T>(dqkv);
      for_heads(context->saved_data["seqlens"].toIntVector(), num_heads, params.head_dim,
                [&](int64_t start, int64_t length, int64_t head, float* memory) {
                  cpu_kernels().of<T>().attention_backward(params, start, length, head, memory);
                });
    });
    return {dqkv, {}, {}, {}};
  }

 private:
  template <class T>
  static AttentionParams<T> shared_params(const at::Tensor& qkv, const at::Tensor& lse, int64_t num_heads,
                                          const DropoutParams& dropout) {
    AttentionParams<T> params{};
    params.num_heads = num_heads;
    params.head_dim = qkv.size(1) / 3 / num_heads;
    params.qkv = data<T>(qkv);
    params.qkv_stride = qkv.stride(0);
    params.dropout = dropout;
    params.lse = mutable_data<float>(lse);
    return params;
  }
};

}  // namespace

at::Tensor varlen_attention(const at::Tensor& qkv, const std::vector<int32_t>& seqlens, int64_t num_heads,
                            const Dropout& dropout) {
  return AttentionFunction::apply(qkv, std::vector<int64_t>(seqlens.begin(), seqlens.end()), num_heads,
                                  dropout);
}

}  // namespace trainer::kernels::fused
