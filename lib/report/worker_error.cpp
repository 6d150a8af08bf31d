#include "report/worker_error.h"

#include <cstdlib>
#include <new>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "report/error_file.h"

namespace trainer::report {

int report_worker_error(const std::exception& error, std::optional<int64_t> step) noexcept {
  try {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    const char* kind = known != nullptr ? known->kind() : no_memory ? "out of memory" : "internal error";
    ErrorReport report;
    report.message = fmt::format("{}: {}", kind, error.what());
    report.step = step;
    report.timestamp_s = unix_time_s();
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

}  // namespace trainer::report
