#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace trainer::model {

using Computation = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// compute(inputs), floating-point and defined, of which only the inputs (defined, floating point) are kept:
// backward computes it again for what is within (activation checkpointing: Chen et al. 2016,
// arXiv:1604.06174). `parameters`: leaves that `compute` uses; their gradients are outputs of this one node,
// so that their hooks (c10d's Reducer) run once. Gradients are to the bit those of plain autograd, as every
// operation is deterministic and dropout is a function of its keys; attention's own generator on CUDA is set
// back. Without gradients: compute(inputs).
std::vector<at::Tensor> recompute(const Computation& compute, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& parameters);

}  // namespace trainer::model
