#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "spec/job_spec.h"

namespace trainer::dist {

// Sums gradients over ranks, overlapped with backward. After the last micro-batch of a step every parameter's
// .grad is the SUM over ranks (not the mean: the caller divides the loss by the global number of targets,
// which also keeps a compressed sum in fp16's range). Per
// micro-batch, on every rank: before_forward, forward (of no samples at all if need be), backward; after the
// last one gradients; then zero_grad.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // `last`: gradients are reduced in the coming backward; else they only accumulate locally.
  virtual void before_forward(bool last) = 0;
  // loss.backward(); `last` as before_forward had it. A collective when last: throws DistributedError.
  // Returns the seconds that the host waited for the sums after the last local gradient was there; about 0 on
  // CUDA, where the device waits.
  virtual double backward(const at::Tensor& loss, bool last) = 0;
  // Each parameter's .grad, in order. Zero where a parameter that had a gradient before took no part in this
  // step; undefined where it never had one on any rank.
  virtual std::vector<at::Tensor> gradients() = 0;
  virtual void zero_grad() = 0;
};

// `parameters`: the trainable ones, in the model's order, with names for messages. Collective: broadcasts
// parameters and `buffers` from rank 0 and checks that all ranks agree on names, shapes and dtypes
// (DistributedError names the first that differs). `on_waiting`: called in each backward that reduces, when this rank's
// gradients are all sent: what is left is to wait for the other ranks'.
std::unique_ptr<GradientSync> make_gradient_sync(
    Communicator& communicator, const spec::Parallel& options,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::vector<at::Tensor>& buffers,
    std::function<void()> on_waiting = {});

}  // namespace trainer::dist
