#include "torch_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace trainer::app {

int run_torch_command(const TorchCommand& command) {
  void* library = ::dlopen("libtrainer_torch.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw Error(ExitCode::kInternal, "installation error",
                fmt::format("cannot load libtrainer_torch.so: {}; hint: it belongs in ../lib beside the "
                            "executable's folder, and LibTorch where it was when trainer was built",
                            ::dlerror()));
  }
  auto* entry = reinterpret_cast<decltype(&trainer_torch_main)>(::dlsym(library, "trainer_torch_main"));
  if (entry == nullptr) {
    throw Error(ExitCode::kInternal, "installation error",
                fmt::format("libtrainer_torch.so is of another version: {}", ::dlerror()));
  }
  return entry(&command);
}

}  // namespace trainer::app
