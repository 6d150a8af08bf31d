#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "kernels/ops.h"
#include "spec/job_spec.h"

// What models are built of.

namespace trainer::model {

struct Affine {
  at::Tensor weight;  // [C_out, C_in], or of a norm [C]
  at::Tensor bias;    // [C_out]; undefined: none
};

// Registers an uninitialized fp32 parameter of `root` under a dotted path, making the modules on the way.
at::Tensor add_parameter(torch::nn::Module& root, const std::string& path, at::IntArrayRef shape);
// `path`.weight, and `path`.bias of the weight's first size.
Affine add_affine(torch::nn::Module& root, const std::string& path, at::IntArrayRef weight_shape,
                  bool bias = true);

at::ScalarType compute_dtype(spec::Precision precision);

// Of probability `p` when `module` is training, else none.
kernels::Dropout dropout_of(const torch::nn::Module& module, double p, const at::Tensor& row_keys,
                            uint32_t site);

// What kernels::linear applies of it: nothing of SwiGLU.
kernels::Activation fused_activation(spec::Activation activation);

// [] 0 that depends on every parameter, even where one is inf; their gradients are zeros. The loss of an
// empty batch.
at::Tensor zero_of(const std::vector<at::Tensor>& parameters);

}  // namespace trainer::model
