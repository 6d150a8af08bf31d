#include "launch/worker.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "launch/error_file.h"

namespace trainer::launch {
namespace {

std::string text_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr)
    fail<SpecError>("{}: not set in a worker's environment; the launcher must set it", name);
  return value;
}

int64_t integer_variable(const char* name) {
  const std::string text = text_variable(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    fail<SpecError>("{}: got \"{}\"; expected an integer >= 0", name, text);
  }
  return value;
}

}  // namespace

std::optional<World> take_worker_world() {
  const char* marker = std::getenv("TRAINER_WORKER");
  const bool ours = marker != nullptr && std::string_view(marker) == "1";
  const bool torchrun = std::getenv("TORCHELASTIC_RUN_ID") != nullptr && std::getenv("LOCAL_RANK") != nullptr;
  ::unsetenv("TRAINER_WORKER");
  if (!ours && !torchrun) return std::nullopt;
  World world;
  world.rank = integer_variable("RANK");
  world.size = integer_variable("WORLD_SIZE");
  world.local_rank = integer_variable("LOCAL_RANK");
  world.local_size = integer_variable("LOCAL_WORLD_SIZE");
  world.node_rank = integer_variable("GROUP_RANK");
  world.num_nodes = integer_variable("GROUP_WORLD_SIZE");
  world.master_addr = text_variable("MASTER_ADDR");
  world.master_port = integer_variable("MASTER_PORT");
  if (world.rank >= world.size || world.local_rank >= world.local_size) {
    fail<SpecError>(
        "RANK {} of WORLD_SIZE {}, LOCAL_RANK {} of LOCAL_WORLD_SIZE {}: a rank must be below its size",
        world.rank, world.size, world.local_rank, world.local_size);
  }
  return world;
}

int report_worker_error(const std::exception& error, std::optional<int64_t> step) noexcept {
  try {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    const char* kind = known != nullptr ? known->kind() : no_memory ? "out of memory" : "internal error";
    ErrorReport report;
    report.message = fmt::format("{}: {}", kind, error.what());
    report.step = step;
    report.timestamp_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    write_line(2, report.message);
    if (const char* path = std::getenv("TORCHELASTIC_ERROR_FILE")) write_error_file(path, report);
    const ExitCode code = known != nullptr ? known->code()
                          : no_memory      ? ExitCode::kOutOfMemory
                                           : ExitCode::kInternal;
    return static_cast<int>(code);
  } catch (...) {
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace trainer::launch
