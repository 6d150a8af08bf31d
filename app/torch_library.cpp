#include "torch_library.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "libtorch.h"

namespace trainer::app {
namespace {

template <class Entry>
Entry* load(const char* library, const char* entry) {
  return reinterpret_cast<Entry*>(load_with_libtorch(library, entry));
}

}  // namespace

int run_prepare(const tokens::PrepareOptions& options) {
  return reinterpret_cast<decltype(trainer_prepare_main)*>(
      load_library("libtrainer_prepare.so", "trainer_prepare_main"))(&options);
}

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
  return load<decltype(trainer_store_main)>("libtrainer_store.so", "trainer_store_main")(fd);
}

}  // namespace trainer::app
