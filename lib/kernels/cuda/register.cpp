// The CUDA implementation of trainer::dropout (declared in composed.cpp): the dispatcher learns it when the
// CUDA plugin is loaded.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <torch/library.h>

#include "kernels/cuda/dropout.h"

namespace trainer::kernels::cuda {
namespace {

at::Tensor dropout_tensor(const at::Tensor& x, const at::Tensor& row_keys, int64_t site, double p) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor from = x.contiguous(), keys = row_keys.contiguous();
  at::Tensor y = at::empty_like(from);
  auto* const kernel = x.scalar_type() == at::kFloat  ? dropout<float>
                       : x.scalar_type() == at::kHalf ? dropout<__half>
                                                      : dropout<__nv_bfloat16>;
  TORCH_CHECK(
      x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16,
      "trainer::dropout: got ", x.scalar_type(), "; expected float, half or bfloat16");
  C10_CUDA_CHECK(static_cast<cudaError_t>(kernel(
      from.const_data_ptr(), y.mutable_data_ptr(), x.size(0), x.size(1), keys.const_data_ptr<int64_t>(),
      static_cast<uint32_t>(site), p, c10::cuda::getCurrentCUDAStream().stream())));
  return y;
}

}  // namespace

TORCH_LIBRARY_IMPL(trainer, CUDA, library) {
  library.impl("dropout", dropout_tensor);
}

}  // namespace trainer::kernels::cuda
