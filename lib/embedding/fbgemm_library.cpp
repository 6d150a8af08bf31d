#include "embedding/fbgemm_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "core/program.h"

namespace at {
class Context;
Context& globalContext();
}  // namespace at

namespace trainer::embedding {
namespace {

namespace fs = std::filesystem;

// In the order in which the package itself loads them; what else they need they find beside them.
constexpr const char* kLibraries[] = {"fbgemm_gpu_config",
                                      "fbgemm_gpu_tbe_utils",
                                      "fbgemm_gpu_tbe_cache",
                                      "fbgemm_gpu_tbe_optimizers",
                                      "fbgemm_gpu_tbe_training_forward",
                                      "fbgemm_gpu_tbe_training_backward",
                                      "fbgemm_gpu_tbe_training_backward_pt2",
                                      "fbgemm_gpu_tbe_training_backward_split_host",
                                      "fbgemm_gpu_py"};

// Of LibTorch's libtorch_cpu.so, links followed.
fs::path libtorch_directory() {
  Dl_info info{};
  std::error_code ignored;
  if (::dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0) return {};
  return fs::canonical(info.dli_fname, ignored).parent_path();
}

// What is wrong, or nothing.
std::string load(c10::Device device, const std::vector<fs::path>& directories) {
  std::string looked;
  for (const fs::path& directory : directories) {
    if (!fs::exists(directory / "fbgemm_gpu_py.so")) {
      looked += "\n  " + directory.string();
      continue;
    }
    // They need libtorch.so loaded: libtorch/CMakeLists.txt.
    const fs::path libtorch = device.is_cuda()
                                  ? libtorch_directory() / "libtorch.so"
                                  : program_directory().parent_path() / "lib" / "libtrainer_libtorch.so";
    ::dlopen(libtorch.c_str(), RTLD_NOW | RTLD_GLOBAL);
    for (const char* library : kLibraries) {
      // Never closed: they register operators for good.
      const fs::path path = directory / (std::string(library) + ".so");
      if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
        return fmt::format("it does not load: {}; it must be of the version that goes with LibTorch's",
                           ::dlerror());
      }
    }
    return "";
  }
  return "there is no package fbgemm_gpu; looked for" + looked;
}

}  // namespace

std::vector<fs::path> fbgemm_directories() {
  if (const std::string dir = environment("TRAINER_FBGEMM"); !dir.empty()) return {dir};
  std::vector<fs::path> directories;
  directories.push_back(libtorch_directory().parent_path().parent_path() / "fbgemm_gpu");  // .../torch/lib
  if (const std::optional<fs::path> python = find_in_path("python3")) {
    for (const fs::path& dir : python_packages(*python, "fbgemm_gpu")) directories.push_back(dir);
  }
  return directories;
}

std::string load_fbgemm(c10::Device device, const std::vector<fs::path>& directories) {
  const std::string fault = load(device, directories);
  const char* package = device.is_cuda() ? "fbgemm-gpu" : "fbgemm-gpu-cpu";
  const std::string hint = fmt::format(
      "\nhint: pip install --no-deps {}==1.6.0 beside LibTorch's torch package, or set TRAINER_FBGEMM to its "
      "folder "
      "(fbgemm_gpu)",
      package);
  if (!fault.empty()) return fault + hint;
  const auto op = c10::Dispatcher::singleton().findSchema(
      {"fbgemm::split_embedding_codegen_forward_unweighted_pt2_wrapper", ""});
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  if (!op || !op->hasKernelForDispatchKey(key))
    return fmt::format("the package has no operators for {}", device.str()) + hint;
  return "";
}

}  // namespace trainer::embedding
