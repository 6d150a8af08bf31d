#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::dist {

// LibTorch's CUDA libraries cost half a second and 430 MB a process, so the executable links none of them: a
// job on CUDA loads libtrainer_cuda.so, which brings them in.

// Call before any other use of ATen in the process (it looks for CUDA once). Does nothing when already
// loaded. Throws DistributedError saying where it looked, what is missing and how to get it.
void load_cuda_plugin();

struct NcclOptions {
  int rank = 0;
  int size = 1;
  int64_t timeout_ms = 0;
  int8_t device = 0;  // index of this process's GPU
};
// Loads the plugin. The communicator is created at once, not at the first collective.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const NcclOptions& options);

// For tests: whether what makes the host wait for the device throws c10::Error (torch.cuda.set_sync_debug_mode). Loads
// the plugin.
void forbid_cuda_waits(bool forbid);

// The plugin's entries, by these names: extern "C".
constexpr char kForbidWaits[] = "trainer_forbid_cuda_waits";
using ForbidWaits = void(bool);
using MakeNcclBackend = void(const c10::intrusive_ptr<c10d::Store>&, const NcclOptions&,
                             c10::intrusive_ptr<c10d::Backend>& result);
constexpr char kMakeNcclBackend[] = "trainer_make_nccl_backend";

}  // namespace trainer::dist
