#include <torch/torch.h>

#include "core/math.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

// A weight is packed (and rounded to bf16) at every use: 1-2 % of the product's time, against a cache of
// copies that must be told of every optimizer step.

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Packs B by pack(panel, out) and multiplies: tiles of strips x panels are what threads take.
template <class T, class Pack>
void multiply(GemmParams<T> params, const Pack& pack) {
  const CpuKernels& kernels = cpu_kernels();
  const auto& typed = kernels.of<T>();
  const int64_t panels = ceil_div(params.n, kernels.panel_columns),
                strips = ceil_div(params.m, kernels.strip_rows);
  const int64_t panel_size = kernels.panel_columns * typed.steps(params.k);
  float* b = scratch(kPanels, panels * panel_size);
  parallel_items(panels, [&](int64_t panel) { pack(panel, b + panel * panel_size); });
  params.b_panels = b;
  constexpr int64_t kTileStrips = 12, kTilePanels = 6;
  const int64_t tiles_down = ceil_div(strips, kTileStrips), tiles_across = ceil_div(panels, kTilePanels);
  parallel_items(tiles_down * tiles_across, [&](int64_t tile) {
    const int64_t strip = tile / tiles_across * kTileStrips, panel = tile % tiles_across * kTilePanels;
    typed.gemm(params, strip, std::min(strips, strip + kTileStrips), panel,
               std::min(panels, panel + kTilePanels));
  });
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, bool gelu) {
    const at::Tensor dense = x.contiguous(), w = weight.contiguous(), b = bias.contiguous();
    const int64_t n = w.size(0), k = w.size(1);
    at::Tensor y = at::empty({x.size(0), n}, x.options());
    at::Tensor activated = gelu ? at::empty_like(y) : at::Tensor();
    with_type(x, [&]<class T>(T) {
      GemmParams<T> params{};
      params.m = x.size(0), params.n = n, params.k = k;
      params.a = data<T>(dense);
      params.bias = data<float>(b);
      params.c = mutable_data<T>(y);
      params.gelu = mutable_data<T>(activated);
      multiply(params, [&](int64_t panel, float* out) {
        cpu_kernels().of<T>().pack_weight_transposed(data<float>(w), k, n, panel, out);
      });
    });
    context->save_for_backward({dense, w, gelu ? y : at::Tensor()});
    return gelu ? activated : y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &before_gelu = saved[2];
    const at::Tensor dy = grads[0].contiguous();
    variable_list result(4);
    with_type(x, [&]<class T>(T) {
      const at::Tensor g = before_gelu.defined() ? gelu_gradient<T>(before_gelu, dy) : dy;
      if (context->needs_input_grad(0)) result[0] = input_gradient<T>(g, weight);
      if (context->needs_input_grad(1) || context->needs_input_grad(2)) {
        std::tie(result[1], result[2]) = parameter_gradients<T>(g, x);
      }
    });
    return result;
  }

 private:
  template <class T>
  static at::Tensor gelu_gradient(const at::Tensor& x, const at::Tensor& dy) {
    const at::Tensor dx = at::empty_like(dy);
    constexpr int64_t kElements = 32768;
    parallel_items(ceil_div(x.numel(), kElements), [&](int64_t item) {
      const int64_t begin = item * kElements, n = std::min(kElements, x.numel() - begin);
      cpu_kernels().of<T>().gelu_backward(data<T>(x) + begin, data<T>(dy) + begin,
                                          mutable_data<T>(dx) + begin, n);
    });
    return dx;
  }

  template <class T>
  static at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& weight) {
    at::Tensor dx = at::empty({g.size(0), weight.size(1)}, g.options());
    GemmParams<T> params{};
    params.m = g.size(0), params.n = weight.size(1), params.k = weight.size(0);
    params.a = data<T>(g);
    params.c = mutable_data<T>(dx);
    multiply(params, [&](int64_t panel, float* out) {
      cpu_kernels().of<T>().pack_weight(data<float>(weight), params.k, params.n, panel, out);
    });
    return dx;
  }

  // {g^T x, column sums of g}, in fp32.
  template <class T>
  static std::pair<at::Tensor, at::Tensor> parameter_gradients(const at::Tensor& g, const at::Tensor& x) {
    const CpuKernels& kernels = cpu_kernels();
    const auto& typed = kernels.of<T>();
    at::Tensor dweight = at::empty({g.size(1), x.size(1)}, at::kFloat),
               dbias = at::zeros({g.size(1)}, at::kFloat);
    GemmParams<T> params{};
    params.m = g.size(1), params.n = x.size(1), params.k = g.size(0);
    params.c_float = mutable_data<float>(dweight);
    const int64_t strips = ceil_div(params.m, kernels.strip_rows);
    const int64_t strip_size = kernels.strip_rows * typed.steps(params.k);
    float* a = scratch(kStrips, strips * strip_size + 16);  // strips are written by whole vectors
    auto* sums = mutable_data<float>(dbias);
    parallel_items(strips, [&](int64_t strip) {
      typed.pack_strip(data<T>(g), params.k, params.m, strip, a + strip * strip_size, sums);
    });
    params.a_strips = a;
    multiply(params, [&](int64_t panel, float* out) {
      typed.pack_activations(data<T>(x), params.k, params.n, panel, out);
    });
    return {dweight, dbias};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu) {
  return LinearFunction::apply(x, weight, bias, gelu);
}

}  // namespace trainer::kernels::fused
