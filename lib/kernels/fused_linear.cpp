#include <torch/torch.h>

#include <optional>

#include "kernels/fused.h"
#include "kernels/product.h"

// A weight is packed (and rounded to bf16) at every use: 1-2 % of the product's time, against a cache of
// copies that must be told of every optimizer step.

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, Activation activation) {
    const at::Tensor dense = x.contiguous(), w = weight.contiguous();
    const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    const int64_t n = w.size(0), k = w.size(1);
    // ReLU's gradient is known from what comes out of it.
    const bool activates = activation != Activation::kNone && activation != Activation::kRelu;
    at::Tensor y = at::empty({x.size(0), n}, x.options());
    at::Tensor activated = activates ? at::empty_like(y) : at::Tensor();
    with_type(x, [&]<class T>(T) {
      GemmParams<T> params{};
      params.m = x.size(0), params.n = n, params.k = k;
      params.a = data<T>(dense), params.lda = k;
      params.bias = data<float>(b);
      params.c = mutable_data<T>(y);
      params.activation = activation;
      params.activated = mutable_data<T>(activated);
      const Product<T> product(params, kPanels);
      parallel_items(product.num_panels(), [&](int64_t i) {
        cpu_kernels().of<T>().pack_weight_transposed(data<float>(w), k, n, i, product.panel(i));
      });
      parallel_items(product.num_tiles(), [&](int64_t tile) { product.multiply_tile(tile); });
    });
    context->save_for_backward({dense, w, activation != Activation::kNone ? y : at::Tensor()});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["has_bias"] = b.defined();
    return activates ? activated : y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const at::Tensor dy = grads[0].contiguous();
    variable_list result(4);
    with_type(dy, [&]<class T>(T) {
      const at::Tensor g =
          activation == Activation::kNone ? dy : activation_gradient<T>(activation, saved[2], dy);
      const bool has_bias = context->saved_data["has_bias"].toBool();
      const bool needs_bias = has_bias && context->needs_input_grad(2);
      gradients<T>(g, saved[0], saved[1], context->needs_input_grad(0),
                   context->needs_input_grad(1) || needs_bias, has_bias, result);
    });
    return result;
  }

 private:
  template <class T>
  static at::Tensor activation_gradient(Activation activation, const at::Tensor& x, const at::Tensor& dy) {
    const at::Tensor dx = at::empty_like(dy);
    constexpr int64_t kElements = 32768;
    parallel_items(ceil_div(x.numel(), kElements), [&](int64_t item) {
      const int64_t begin = item * kElements, n = std::min(kElements, x.numel() - begin);
      cpu_kernels().of<T>().activation_backward(activation, data<T>(x) + begin, data<T>(dy) + begin,
                                                mutable_data<T>(dx) + begin, n);
    });
    return dx;
  }

  // result: {g W, g^T x, column sums of g}, the latter two in fp32; all packing, then all products.
  template <class T>
  static void gradients(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight, bool needs_x,
                        bool needs_parameters, bool has_bias, variable_list& result) {
    const CpuKernels& kernels = cpu_kernels();
    const auto& typed = kernels.of<T>();
    const int64_t rows = g.size(0), n = weight.size(0), k = weight.size(1);
    std::optional<Product<T>> dx, dw;
    if (needs_x) {
      result[0] = at::empty({rows, k}, g.options());
      GemmParams<T> params{};
      params.m = rows, params.n = k, params.k = n;
      params.a = data<T>(g), params.lda = n;
      if constexpr (sizeof(T) == sizeof(float)) {
        params.c_float = mutable_data<float>(result[0]), params.ldc = k;
      } else {
        params.c = mutable_data<T>(result[0]);
      }
      dx.emplace(params, kPanels);
    }
    const int64_t strips = needs_parameters ? ceil_div(n, kernels.strip_rows) : 0;
    const int64_t strip_size = kernels.strip_rows * typed.steps(rows);
    float *a_strips = nullptr, *sums = nullptr;
    if (needs_parameters) {
      result[1] = at::empty({n, k}, at::kFloat);
      if (has_bias) result[2] = at::zeros({n}, at::kFloat), sums = mutable_data<float>(result[2]);
      a_strips = scratch(kStrips, strips * strip_size + 16);  // strips are written by whole vectors
      GemmParams<T> params{};
      params.m = n, params.n = k, params.k = rows;
      params.a_strips = a_strips;
      params.c_float = mutable_data<float>(result[1]), params.ldc = k;
      dw.emplace(params, kMorePanels);
    }
    const int64_t dx_panels = dx ? dx->num_panels() : 0, dw_panels = dw ? dw->num_panels() : 0;
    parallel_items(strips + dx_panels + dw_panels, [&](int64_t i) {
      if (i < strips) {
        typed.pack_strip(data<T>(g), rows, n, i, a_strips + i * strip_size, sums);
      } else if (i -= strips; i < dx_panels) {
        typed.pack_weight(data<float>(weight), n, k, i, dx->panel(i));
      } else {
        i -= dx_panels;
        typed.pack_activations(data<T>(x), rows, k, i, dw->panel(i));
      }
    });
    const int64_t dx_tiles = dx ? dx->num_tiles() : 0, dw_tiles = dw ? dw->num_tiles() : 0;
    parallel_items(dx_tiles + dw_tiles,
                   [&](int64_t i) { i < dx_tiles ? dx->multiply_tile(i) : dw->multiply_tile(i - dx_tiles); });
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation) {
  return LinearFunction::apply(x, weight, if_defined(bias), activation);
}

}  // namespace trainer::kernels::fused
