#include "model/layers.h"

namespace trainer::model {

at::Tensor add_parameter(torch::nn::Module& root, const std::string& path, at::IntArrayRef shape) {
  torch::nn::Module* module = &root;
  size_t start = 0;
  for (size_t dot; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    const std::string name = path.substr(start, dot - start);
    const auto children = module->named_children();
    const auto* child = children.find(name);
    module = child != nullptr ? child->get()
                              : module->register_module(name, std::make_shared<torch::nn::Module>()).get();
  }
  return module->register_parameter(path.substr(start), at::empty(shape));
}

Affine add_affine(torch::nn::Module& root, const std::string& path, at::IntArrayRef weight_shape, bool bias) {
  at::Tensor weight = add_parameter(root, path + ".weight", weight_shape);
  return {weight, bias ? add_parameter(root, path + ".bias", {weight_shape[0]}) : at::Tensor()};
}

at::ScalarType compute_dtype(spec::Precision precision) {
  switch (precision) {
    case spec::Precision::kFp32:
      return at::kFloat;
    case spec::Precision::kBf16:
      return at::kBFloat16;
    case spec::Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

kernels::Dropout dropout_of(const torch::nn::Module& module, double p, const at::Tensor& row_keys,
                            uint32_t site) {
  if (!module.is_training() || p == 0) return {};
  return {.p = p, .row_keys = row_keys, .site = site};
}

kernels::Activation fused_activation(spec::Activation activation) {
  if (activation == spec::Activation::kRelu) return kernels::Activation::kRelu;
  if (activation == spec::Activation::kGelu) return kernels::Activation::kGelu;
  if (activation == spec::Activation::kGeluTanh) return kernels::Activation::kGeluTanh;
  return kernels::Activation::kNone;
}

at::Tensor zero_of(const std::vector<at::Tensor>& parameters) {
  at::Tensor zero = at::zeros({}, parameters.at(0).options().requires_grad(false));
  for (const at::Tensor& parameter : parameters)
    zero = zero + parameter.slice(0, 0, 0).sum();  // of no elements
  return zero;
}

}  // namespace trainer::model
