#include "dist/cuda_plugin.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "core/error.h"

namespace fs = std::filesystem;

namespace trainer::dist {
namespace {

constexpr char kLibrary[] = "libtrainer_cuda.so";

// TRAINER_PLUGIN_DIR alone when it is set; else the executable's folder and ../lib, where it is built and
// installed.
std::vector<fs::path> candidates() {
  if (const char* dir = std::getenv("TRAINER_PLUGIN_DIR")) return {fs::path(dir) / kLibrary};
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {bin / kLibrary, bin.parent_path() / "lib" / kLibrary};
}

// Loads LibTorch's CUDA part from where LibTorch is: the plugin is linked to it, but does not know where. Returns what is
// wrong.
std::string load_torch_cuda() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<void*>(&at::globalContext), &info);
  const fs::path library = fs::path(info.dli_fname).parent_path() / "libtorch_cuda.so";
  return ::dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr ? "" : ::dlerror();
}

void* open_library() {
  std::string looked;
  for (const auto& path : candidates()) {
    if (!fs::exists(path)) {
      looked += (looked.empty() ? "" : ", ") + path.string();
      continue;
    }
    std::string fault = load_torch_cuda();
    // Global: LibTorch's CUDA libraries find each other's symbols. Never closed: they register themselves for good.
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    if (fault.empty()) fault = ::dlerror();
    fail<DistributedError>(
        "the CUDA plugin does not load: {}; it needs a LibTorch of the version and CUDA it was built with",
        fault);
  }
  fail<DistributedError>(
      "the job runs on CUDA, but there is no CUDA plugin ({}); build with -DTRAINER_CUDA=ON where nvcc, "
      "NCCL and LibTorch's CUDA libraries are (scripts/setup.sh gets them), set TRAINER_PLUGIN_DIR to its "
      "folder, or set hardware.device: cpu",
      looked);
}

void* library() {
  static void* const handle = open_library();
  return handle;
}

template <class F>
F* entry(const char* name) {
  void* symbol = ::dlsym(library(), name);
  if (symbol == nullptr) {
    fail<DistributedError>("{} has no {}: it is of another version of this program; build both together",
                           kLibrary, name);
  }
  return reinterpret_cast<F*>(symbol);
}

}  // namespace

void load_cuda_plugin() {
  library();
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const NcclOptions& options) {
  c10::intrusive_ptr<c10d::Backend> backend;
  entry<MakeNcclBackend>(kMakeNcclBackend)(store, options, backend);
  return backend;
}

void forbid_cuda_waits(bool forbid) {
  entry<ForbidWaits>(kForbidWaits)(forbid);
}

}  // namespace trainer::dist
