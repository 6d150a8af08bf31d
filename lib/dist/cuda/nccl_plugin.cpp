// libtrainer_cuda.so: what of this program needs LibTorch's CUDA libraries at link time. Loaded by
// dist/cuda_plugin.cpp.
#include <c10/cuda/CUDAFunctions.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dist/cuda_plugin.h"

extern "C" __attribute__((visibility("default"))) void trainer_make_nccl_backend(
    const c10::intrusive_ptr<c10d::Store>& store, const trainer::dist::NcclOptions& options,
    c10::intrusive_ptr<c10d::Backend>& result) {
  // As torchrun: a failed or timed-out collective ends the process (dist::explain_watchdog says why) instead
  // of leaving it in a kernel for ever. A blocking wait would throw in the main thread, but stop the host
  // from queueing work ahead; mere clean-up (2) would let it go on with gradients half summed.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", /*overwrite=*/0);
  c10::cuda::set_device(options.device);
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  nccl_options->timeout = std::chrono::milliseconds(options.timeout_ms);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.size, nccl_options);
  const at::Device device(at::kCUDA, options.device);
  backend->setBoundDeviceId(device);
  backend->eagerConnectSingleDevice(device);
  result = backend;
}

extern "C" __attribute__((visibility("default"))) void trainer_forbid_cuda_waits(bool forbid) {
  using Mode = c10::cuda::SyncDebugMode;
  c10::cuda::warning_state().set_sync_debug_mode(forbid ? Mode::L_ERROR : Mode::L_DISABLED);
}
