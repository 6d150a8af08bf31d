#include "train/torch_error.h"

#include <string>

#include "core/error.h"

namespace trainer::train {

void fail_as_ours(const c10::Error& error, std::string_view memory_hint) {
  const std::string message = error.what_without_backtrace();
  const bool on_device = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  // The CPU's allocator throws no type of its own.
  if (on_device || message.find("DefaultCPUAllocator: ") != std::string::npos) {
    fail<OutOfMemoryError>("out of {}memory: {}; hint: {}", on_device ? "device " : "", message, memory_hint);
  }
  throw Error(ExitCode::kInternal, "internal error", message);
}

}  // namespace trainer::train
