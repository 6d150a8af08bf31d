#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "spec/job_spec.h"

namespace trainer::dist {

// Sums gradients over ranks, overlapped with backward. After the last micro-batch of a step every parameter's .grad is
// the SUM over ranks (not the mean: the caller divides by the global number of targets).
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // Before forward. `last`: gradients are reduced in the coming backward; else they only accumulate locally.
  virtual void before_forward(bool last) = 0;
  // Between forward and backward, with the tensors that backward starts from.
  virtual void before_backward(const std::vector<at::Tensor>& outputs, bool last) = 0;
  // Zeroes gradients in place (they are views of communication buckets).
  virtual void zero_grad() = 0;
};

// `parameters`: the trainable ones, in the model's order, with names for messages. Collective: broadcasts parameters
// and `buffers` from rank 0 and checks that all ranks agree on names, shapes and dtypes (DistributedError names the
// first that differs).
std::unique_ptr<GradientSync> make_gradient_sync(
    Communicator& communicator, const spec::Parallel& options,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::vector<at::Tensor>& buffers);

}  // namespace trainer::dist
