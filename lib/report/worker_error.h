#pragma once

#include <cstdint>
#include <exception>
#include <optional>

namespace trainer::report {

// Tells people (standard error) and the agent (TORCHELASTIC_ERROR_FILE) why this worker fails; returns the
// exit code.
int report_worker_error(const std::exception& error, std::optional<int64_t> step) noexcept;

}  // namespace trainer::report
