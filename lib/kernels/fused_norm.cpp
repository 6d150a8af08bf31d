#include <torch/torch.h>

#include "core/math.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void apply_dropout(const at::Tensor& x, const at::Tensor& y, const DropoutParams& params) {
  with_type(x, [&]<class T>(T) {
    for_items(x.size(0), [&](int64_t, int64_t first, int64_t last) {
      cpu_kernels().of<T>().dropout(data<T>(x), mutable_data<T>(y), x.size(1), params, first, last);
    });
  });
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Dropout& dropout) {
    const at::Tensor from = x.contiguous();
    const Dropout with = dense(dropout);
    at::Tensor y = at::empty_like(from);
    apply_dropout(from, y, dropout_params(with));
    context->save_for_backward({with.row_keys});
    save_dropout(*context, with);
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous(), dx = at::empty_like(dy);
    apply_dropout(dy, dx, dropout_params(saved_dropout(*context, context->get_saved_variables()[0])));
    return {dx, {}};
  }
};

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& residual,
                               const at::Tensor& weight, const at::Tensor& bias, double eps,
                               const Dropout& dropout) {
    const at::Tensor from = x.contiguous(), sum_with = residual.contiguous(), gamma = weight.contiguous();
    const at::Tensor beta = bias.contiguous();
    const Dropout with = dense(dropout);
    at::Tensor y = at::empty_like(sum_with);
    at::Tensor copy = x.scalar_type() == at::kFloat ? at::Tensor() : at::empty_like(from);
    at::Tensor mean = at::empty({x.size(0)}, at::kFloat), rstd = at::empty_like(mean);
    with_type(x, [&]<class T>(T) {
      LayerNormParams<T> params = shared_params<T>(from, sum_with, gamma, mean, rstd);
      params.bias = data<float>(beta);
      params.eps = static_cast<float>(eps);
      params.dropout = dropout_params(with);
      params.y = mutable_data<float>(y);
      params.y_copy = mutable_data<T>(copy);
      for_items(x.size(0), [&](int64_t, int64_t first, int64_t last) {
        cpu_kernels().of<T>().layer_norm_forward(params, first, last);
      });
    });
    context->save_for_backward({from, sum_with, gamma, mean, rstd, with.row_keys});
    context->set_materialize_grads(false);
    save_dropout(*context, with);
    if (!copy.defined()) return {y};
    return {y, copy};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &residual = saved[1], &weight = saved[2];
    if (!grads[0].defined() && (grads.size() == 1 || !grads[1].defined())) return variable_list(6);
    const at::Tensor dy = grads[0].defined() ? grads[0].contiguous() : at::Tensor();
    const at::Tensor dy_copy = grads.size() > 1 && grads[1].defined() ? grads[1].contiguous() : at::Tensor();
    const at::Tensor dx = at::empty_like(x), dresidual = at::empty_like(residual);
    const int64_t items = ceil_div(x.size(0), kRowsPerItem);
    const at::Tensor partial = at::empty({2, items, x.size(1)}, at::kFloat);
    with_type(x, [&]<class T>(T) {
      LayerNormParams<T> params = shared_params<T>(x, residual, weight, saved[3], saved[4]);
      params.dropout = dropout_params(saved_dropout(*context, saved[5]));
      params.dy = data<float>(dy);
      params.dy_copy = data<T>(dy_copy);
      params.dx = mutable_data<T>(dx);
      params.dresidual = mutable_data<float>(dresidual);
      auto* sums = mutable_data<float>(partial);
      for_items(x.size(0), [&](int64_t item, int64_t first, int64_t last) {
        cpu_kernels().of<T>().layer_norm_backward(params, first, last, sums + item * x.size(1),
                                                  sums + (items + item) * x.size(1));
      });
    });
    const at::Tensor dweights = partial.sum(1);
    return {dx, dresidual, dweights[0], dweights[1], {}, {}};
  }

 private:
  template <class T>
  static LayerNormParams<T> shared_params(const at::Tensor& x, const at::Tensor& residual,
                                          const at::Tensor& weight, const at::Tensor& mean,
                                          const at::Tensor& rstd) {
    LayerNormParams<T> params{};
    params.columns = x.size(1);
    params.x = data<T>(x);
    params.residual = data<float>(residual);
    params.weight = data<float>(weight);
    params.mean = mutable_data<float>(mean);
    params.rstd = mutable_data<float>(rstd);
    return params;
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  if (dropout.p == 0) return x;
  return DropoutFunction::apply(x, dropout);
}

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout) {
  const auto outputs = LayerNormFunction::apply(x, residual, weight, bias, eps, dropout);
  return {outputs.front(), outputs.back()};
}

}  // namespace trainer::kernels::fused
