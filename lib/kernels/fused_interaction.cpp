#include <torch/torch.h>

#include <optional>

#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

InteractionParams params_of(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim) {
  return {.has_first = first.defined(),
          .num_embeddings = embeddings.size(1) / dim,
          .dim = dim,
          .first = data<float>(first),
          .embeddings = data<float>(embeddings)};
}

float* scratch_of(const InteractionParams& params) {
  return scratch(kPanels, cpu_kernels().interaction_scratch(params.num_vectors(), params.dim));
}

struct InteractionFunction : torch::autograd::Function<InteractionFunction> {
  static at::Tensor forward(AutogradContext* context, const std::optional<at::Tensor>& first,
                            const at::Tensor& embeddings, int64_t dim, at::ScalarType dtype) {
    const at::Tensor x0 = first ? first->contiguous() : at::Tensor(), x = embeddings.contiguous();
    const InteractionParams params = params_of(x0, x, dim);
    at::Tensor out = at::empty({x.size(0), params.columns()}, x.options().dtype(dtype));
    with_type(out, [&]<class T>(T) {
      for_items(x.size(0), [&](int64_t, int64_t begin, int64_t end) {
        cpu_kernels().of<T>().interaction_forward(params, mutable_data<T>(out), begin, end,
                                                  scratch_of(params));
      });
    });
    context->save_for_backward({x0, x});
    context->saved_data["dim"] = dim;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &first = saved[0], &embeddings = saved[1], dout = grads[0].contiguous();
    const InteractionParams params = params_of(first, embeddings, context->saved_data["dim"].toInt());
    const at::Tensor dfirst = first.defined() ? at::empty_like(first) : at::Tensor();
    const at::Tensor dembeddings = at::empty_like(embeddings);
    with_type(dout, [&]<class T>(T) {
      for_items(dout.size(0), [&](int64_t, int64_t begin, int64_t end) {
        cpu_kernels().of<T>().interaction_backward(params, data<T>(dout), mutable_data<float>(dfirst),
                                                   mutable_data<float>(dembeddings), begin, end,
                                                   scratch_of(params));
      });
    });
    return {dfirst, dembeddings, {}, {}};
  }
};

}  // namespace

at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype) {
  return InteractionFunction::apply(if_defined(first), embeddings, dim, dtype);
}

}  // namespace trainer::kernels::fused
