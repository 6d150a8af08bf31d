#include "kernels/composed.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/philox.h"

namespace trainer::kernels {

// On CUDA implemented by the CUDA plugin (kernels/cuda/register.cpp).
TORCH_LIBRARY(trainer, library) {
  library.def("dropout(Tensor x, Tensor row_keys, int site, float p) -> Tensor");
}

namespace composed {
namespace {

// 0 or the scale for rows of these keys: [rows, columns] fp32 on CPU.
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

at::Tensor attend(const at::Tensor& qkv, const at::Tensor& row_keys,
                  const Dropout& dropout) {                // [T, 3, H, D]
  const auto parts = qkv.permute({1, 2, 0, 3}).unbind(0);  // [H, T, D]
  if (dropout.p == 0) return at::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(0, 1);
  const double scale = 1 / std::sqrt(static_cast<double>(qkv.size(3)));
  at::Tensor weights = at::softmax(at::matmul(parts[0] * scale, parts[1].transpose(1, 2)), -1);  // [H, T, T]
  if (qkv.is_cuda()) {
    weights = at::dropout(weights, dropout.p, true);
  } else {
    std::vector<at::Tensor> factors;
    for (int64_t head = 0; head < qkv.size(2); ++head) {
      factors.push_back(
          dropout_factors(row_keys, dropout.site, static_cast<uint32_t>(head), qkv.size(0), dropout.p));
    }
    weights = weights * at::stack(factors).to(weights.scalar_type());
  }
  return at::matmul(weights, parts[2]).transpose(0, 1);
}

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

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool gelu) {
  const at::Tensor y = at::linear(x, weight.to(x.scalar_type()), bias.to(x.scalar_type()));
  return gelu ? at::gelu(y) : y;
}

at::Tensor varlen_attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                            const std::vector<int32_t>& seqlens, int64_t num_heads, const Dropout& dropout) {
  const int64_t head_dim = qkv.size(1) / 3 / num_heads;
  const at::Tensor heads = qkv.view({qkv.size(0), 3, num_heads, head_dim});
  const bool half = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  if (qkv.is_cuda() && half && head_dim % 8 == 0 && head_dim <= 256 && !seqlens.empty()) {
    const auto parts = heads.unbind(1);
    const int64_t longest = *std::max_element(seqlens.begin(), seqlens.end());
    return std::get<0>(at::_flash_attention_forward(parts[0], parts[1], parts[2], cu_seqlens, cu_seqlens,
                                                    longest, longest, dropout.p, false, false))
        .reshape({qkv.size(0), -1});
  }
  std::vector<at::Tensor> outputs;
  int64_t start = 0;
  for (const int64_t length : seqlens) {
    const at::Tensor keys = dropout.p > 0 ? dropout.row_keys.narrow(0, start, length) : at::Tensor();
    outputs.push_back(attend(heads.narrow(0, start, length), keys, dropout));
    start += length;
  }
  if (outputs.empty()) return qkv.narrow(1, 0, qkv.size(1) / 3).clone();
  return at::cat(outputs).reshape({qkv.size(0), -1});
}

}  // namespace composed
}  // namespace trainer::kernels
