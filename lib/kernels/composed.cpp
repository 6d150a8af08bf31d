#include "kernels/composed.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "core/error.h"
#include "kernels/philox.h"

namespace trainer::kernels {

// On CUDA implemented by the CUDA plugin (kernels/cuda/register.cpp).
TORCH_LIBRARY(trainer, library) {
  library.def("dropout(Tensor x, Tensor row_keys, int site, float p) -> Tensor");
}

namespace composed {

at::Tensor dropout_factors(const at::Tensor& row_keys, uint32_t site, uint32_t head, int64_t columns,
                           double p) {
  const at::Tensor factors = at::empty({row_keys.size(0), columns}, at::kFloat);
  const uint32_t threshold = dropout_threshold(p);
  const float scale = dropout_scale(threshold);
  const at::Tensor keys = row_keys.contiguous();
  auto* out = factors.data_ptr<float>();
  for (int64_t row = 0; row < keys.size(0); ++row) {
    const auto key = static_cast<uint64_t>(keys.const_data_ptr<int64_t>()[row]);
    for (int64_t column = 0; column < columns; ++column) {
      *out++ = dropout_bits(key, site, head, static_cast<uint32_t>(column)) >= threshold ? scale : 0.0F;
    }
  }
  return factors;
}

namespace {

// On CUDA: the gradient is the same function of the gradient.
struct CudaDropoutFunction : torch::autograd::Function<CudaDropoutFunction> {
  static at::Tensor apply_kernel(const at::Tensor& x, const at::Tensor& row_keys, int64_t site, double p) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("trainer::dropout", "")
                               .typed<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, double)>();
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
      throw Error(ExitCode::kInternal, "internal error", "dropout on CUDA: the CUDA plugin is not loaded");
    }
    return op.call(x, row_keys, site, p);
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& row_keys, int64_t site, double p) {
    context->save_for_backward({row_keys});
    context->saved_data["site"] = site;
    context->saved_data["p"] = p;
    return apply_kernel(x, row_keys, site, p);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    return {apply_kernel(grads[0], context->get_saved_variables()[0], context->saved_data["site"].toInt(),
                         context->saved_data["p"].toDouble()),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  if (dropout.p == 0) return x;
  if (x.is_cuda()) return CudaDropoutFunction::apply(x, dropout.row_keys, int64_t{dropout.site}, dropout.p);
  return x * dropout_factors(dropout.row_keys, dropout.site, 0, x.size(1), dropout.p).to(x.scalar_type());
}

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias,
                                                         double eps, const Dropout& dropout) {
  const at::Tensor sum = residual + composed::dropout(x, dropout);
  const at::Tensor y = at::layer_norm(sum, {x.size(1)}, weight, bias, eps);
  return {y, y.to(x.scalar_type())};
}

std::pair<at::Tensor, at::Tensor> dropout_add_norm(const at::Tensor& x, const at::Tensor& residual,
                                                   const Norm& norm, at::ScalarType dtype,
                                                   const Dropout& dropout) {
  const at::Tensor h = x.defined() ? residual + composed::dropout(x, dropout) : residual;
  if (!norm.rms) return {h, at::layer_norm(h, {h.size(1)}, norm.weight, norm.bias, norm.eps).to(dtype)};
  const at::Tensor rstd = (h.square().mean(-1, true) + norm.eps).rsqrt();
  return {h, (h * rstd * norm.weight).to(dtype)};
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  Activation activation) {
  const at::Tensor y =
      at::linear(x, weight.to(x.scalar_type()), bias.defined() ? bias.to(x.scalar_type()) : at::Tensor());
  if (activation == Activation::kNone) return y;
  if (activation == Activation::kRelu) return at::relu(y);
  return at::gelu(y, activation == Activation::kGeluTanh ? "tanh" : "none");
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, 1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor dot_interaction(const at::Tensor& first, const at::Tensor& embeddings, int64_t dim,
                           at::ScalarType dtype) {
  const int64_t n = embeddings.size(1) / dim + (first.defined() ? 1 : 0);
  const at::Tensor x =
      (first.defined() ? at::cat({first, embeddings}, 1) : embeddings).view({embeddings.size(0), n, dim});
  const at::Tensor below = at::tril_indices(n, n, -1, x.options().dtype(at::kLong));
  const at::Tensor pairs =
      at::bmm(x, x.transpose(1, 2)).flatten(1).index_select(1, below.select(0, 0) * n + below.select(0, 1));
  return (first.defined() ? at::cat({first, pairs}, 1) : pairs).to(dtype);
}

}  // namespace composed
}  // namespace trainer::kernels
