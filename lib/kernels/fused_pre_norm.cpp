#include <torch/torch.h>

#include "core/math.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// {h, y}, or {y} alone without x, when h is the residual itself.
struct PreNormFunction : torch::autograd::Function<PreNormFunction> {
  static variable_list forward(AutogradContext* context, const std::optional<at::Tensor>& x,
                               const at::Tensor& residual, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, const Norm& norm, at::ScalarType dtype,
                               const Dropout& dropout) {
    const at::Tensor from = x ? x->contiguous() : at::Tensor(), sum_with = residual.contiguous();
    const at::Tensor gamma = weight.contiguous(), beta = bias ? bias->contiguous() : at::Tensor();
    const Dropout with = dense(dropout);
    const at::Tensor h = x ? at::empty_like(sum_with) : sum_with;
    at::Tensor y = at::empty(sum_with.sizes(), sum_with.options().dtype(dtype));
    at::Tensor mean = at::empty({h.size(0)}, at::kFloat), rstd = at::empty_like(mean);
    with_type(y, [&]<class T>(T) {
      PreNormParams<T> params = shared_params<T>(h, gamma, mean, rstd, norm.rms);
      params.bias = data<float>(beta);
      params.eps = static_cast<float>(norm.eps);
      params.dropout = dropout_params(with);
      params.x = data<T>(from);
      params.residual = data<float>(sum_with);
      params.y = mutable_data<T>(y);
      for_items(h.size(0), [&](int64_t, int64_t first, int64_t last) {
        cpu_kernels().of<T>().pre_norm_forward(params, first, last);
      });
    });
    context->save_for_backward({h, gamma, mean, rstd, with.row_keys});
    context->set_materialize_grads(false);
    context->saved_data["rms"] = norm.rms;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["dtype"] = static_cast<int64_t>(dtype);
    save_dropout(*context, with);
    if (!x) return {y};
    return {h, y};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& h = saved[0];
    const auto dense_or_none = [](const at::Tensor& g) { return g.defined() ? g.contiguous() : g; };
    const bool has_x = grads.size() == 2;
    const at::Tensor dh = has_x ? dense_or_none(grads[0]) : at::Tensor(), dy = dense_or_none(grads.back());
    variable_list result(7);
    if (!dh.defined() && !dy.defined()) return result;
    const bool rms = context->saved_data["rms"].toBool();
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const Dropout dropout = saved_dropout(*context, saved[4]);
    const at::Tensor dresidual = at::empty_like(h);
    // The two gradients are one when nothing lies between.
    const bool is_same = dtype == at::kFloat && dropout.p == 0;
    const at::Tensor dx = has_x && !is_same ? at::empty(h.sizes(), h.options().dtype(dtype)) : at::Tensor();
    const int64_t items = ceil_div(h.size(0), kRowsPerItem), columns = h.size(1);
    const at::Tensor partial = at::empty({items, 2, columns}, at::kFloat);
    with_type(dtype, [&]<class T>(T) {
      PreNormParams<T> params = shared_params<T>(h, saved[1], saved[2], saved[3], rms);
      params.dropout = dropout_params(dropout);
      params.dh = data<float>(dh);
      params.dy = data<T>(dy);
      params.dresidual = mutable_data<float>(dresidual);
      params.dx = mutable_data<T>(dx);
      auto* sums = mutable_data<float>(partial);
      for_items(h.size(0), [&](int64_t item, int64_t first, int64_t last) {
        float* const dweight = sums + item * 2 * columns;
        cpu_kernels().of<T>().pre_norm_backward(params, first, last, dweight, dweight + columns);
      });
    });
    const at::Tensor dweights = partial.sum(0);
    if (has_x) result[0] = is_same ? dresidual : dx;
    result[1] = dresidual;
    result[2] = dweights[0];
    if (context->saved_data["has_bias"].toBool()) result[3] = dweights[1];
    return result;
  }

 private:
  template <class T>
  static PreNormParams<T> shared_params(const at::Tensor& h, const at::Tensor& weight, const at::Tensor& mean,
                                        const at::Tensor& rstd, bool rms) {
    PreNormParams<T> params{};
    params.columns = h.size(1);
    params.weight = data<float>(weight);
    params.rms = rms;
    params.h = mutable_data<float>(h);
    params.mean = mutable_data<float>(mean);
    params.rstd = mutable_data<float>(rstd);
    return params;
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout) {
  const auto outputs = PreNormFunction::apply(if_defined(x), residual, norm.weight, if_defined(norm.bias),
                                              norm, dtype, dropout);
  return {x.defined() ? outputs.front() : residual, outputs.back()};
}

}  // namespace trainer::kernels::fused
