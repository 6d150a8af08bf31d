#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/communicator.h"
#include "embedding/layout.h"
#include "spec/job_spec.h"

// Pooled rows on their way from the owners to the samples' ranks, and gradients on the way back. B samples of this rank, B_r
// of rank r; D_o columns of owner o.

namespace trainer::embedding {

// A message to each rank and one from each, under way. In fp16 or bf16 where compressed; fp16 by a power of two, one for each
// message, that brings its largest value near the type's: gradients are divided by the batch, and would underflow.
class Exchange {
 public:
  // blocks: to each rank, fp32, of any shape. sizes: of what each rank sends.
  Exchange(dist::Communicator& communicator, spec::GradientCompression compression,
           const std::vector<at::Tensor>& blocks, std::vector<std::vector<int64_t>> sizes, const char* what);
  // The blocks of each rank, fp32. Once.
  std::vector<at::Tensor> wait();

 private:
  spec::GradientCompression compression_;
  std::vector<std::vector<int64_t>> sizes_;
  at::Tensor received_;
  std::vector<int64_t> elements_;  // of received_, of each rank
  std::unique_ptr<dist::Pending> pending_;
};

// Puts an owner's pooled rows [B, D_o] into those of all features [B, columns].
void gather_columns(const Owner& owner, const at::Tensor& pooled, const at::Tensor& all);
// The opposite of gradients: what an owner gets of those of all features.
at::Tensor owner_columns(const Owner& owner, const at::Tensor& all);

}  // namespace trainer::embedding
