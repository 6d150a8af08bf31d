#include "torch_library.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "libtorch.h"

namespace trainer::app {
namespace {

// `load`: load_with_libtorch or load_library.
template <class Entry>
Entry* find(const char* library, const char* entry, decltype(load_library)* load = load_with_libtorch) {
  return reinterpret_cast<Entry*>(load(library, entry));
}

}  // namespace

int run_prepare(const tokens::PrepareOptions& options) {
  return find<decltype(trainer_prepare_main)>("libtrainer_prepare.so", "trainer_prepare_main",
                                              load_library)(&options);
}

int run_prepare(const records::PrepareOptions& options) {
  return find<decltype(trainer_prepare_records_main)>("libtrainer_prepare.so", "trainer_prepare_records_main",
                                                      load_library)(&options);
}

int run_prepare(const records::SyntheticOptions& options) {
  return find<decltype(trainer_prepare_synthetic_main)>(
      "libtrainer_prepare.so", "trainer_prepare_synthetic_main", load_library)(&options);
}

int run_torch_command(const TorchCommand& command) {
  return find<decltype(trainer_torch_main)>("libtrainer_torch.so", "trainer_torch_main")(&command);
}

int run_generate(const GenerateRequest& request) {
  return find<decltype(trainer_generate_main)>("libtrainer_torch.so", "trainer_generate_main")(&request);
}

int run_checkpoint_command(const CheckpointRequest& request) {
  return find<decltype(trainer_checkpoint_main)>("libtrainer_torch.so", "trainer_checkpoint_main")(&request);
}

int serve_store() {
  const char* text = std::getenv("TRAINER_STORE_FD");
  const std::string_view number = text != nullptr ? text : "";
  int fd = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  if (error != std::errc() || end != number.data() + number.size()) {
    fail<SpecError>("TRAINER_STORE_FD: got \"{}\"; expected the number of a descriptor that listens", number);
  }
  return find<decltype(trainer_store_main)>("libtrainer_store.so", "trainer_store_main")(fd);
}

}  // namespace trainer::app
