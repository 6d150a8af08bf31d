#include "torch_library.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace trainer::app {
namespace {

template <class Entry>
Entry* load(const char* library_name, const char* entry_name) {
  void* library = ::dlopen(library_name, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw Error(
        ExitCode::kInternal, "installation error",
        fmt::format("cannot load {}: {}; hint: it belongs in ../lib beside the executable's folder, and "
                    "LibTorch where it was when trainer was built",
                    library_name, ::dlerror()));
  }
  auto* entry = reinterpret_cast<Entry*>(::dlsym(library, entry_name));
  if (entry == nullptr) {
    throw Error(ExitCode::kInternal, "installation error",
                fmt::format("{} is of another version: {}", library_name, ::dlerror()));
  }
  return entry;
}

}  // namespace

int run_torch_command(const TorchCommand& command) {
  return load<decltype(trainer_torch_main)>("libtrainer_torch.so", "trainer_torch_main")(&command);
}

int serve_store() {
  const char* text = std::getenv("TRAINER_STORE_FD");
  const std::string_view number = text != nullptr ? text : "";
  int fd = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  if (error != std::errc() || end != number.data() + number.size()) {
    fail<SpecError>("TRAINER_STORE_FD: got \"{}\"; expected the number of a descriptor that listens", number);
  }
  load<decltype(trainer_store_main)>("libtrainer_store.so", "trainer_store_main")(fd);
  return 0;
}

}  // namespace trainer::app
