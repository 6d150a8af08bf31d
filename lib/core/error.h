#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trainer {

// Exit codes of the program. 128+signal is used for a worker that a signal killed.
enum class ExitCode {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kData = 3,
  kDistributed = 4,
  kCheckpoint = 5,
  kNumeric = 6,
  kOutOfMemory = 7,
  kPreempted = 75,
};

// Base of every error that is the user's to see. The message says what, where, got, expected, and a hint.
// Only main() turns it into an exit code.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const char* kind, const std::string& message)
      : std::runtime_error(message), code_(code), kind_(kind) {}
  ExitCode code() const { return code_; }
  // Short name for people, e.g. "data error".
  const char* kind() const { return kind_; }

 private:
  ExitCode code_;
  const char* kind_;
};

// One type per exit code.
struct SpecError : Error {
  explicit SpecError(const std::string& m) : Error(ExitCode::kUsage, "spec error", m) {}
};
struct DataError : Error {
  explicit DataError(const std::string& m) : Error(ExitCode::kData, "data error", m) {}
};
struct DistributedError : Error {
  explicit DistributedError(const std::string& m) : Error(ExitCode::kDistributed, "distributed error", m) {}
};
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& m) : Error(ExitCode::kCheckpoint, "checkpoint error", m) {}
};
struct NumericError : Error {
  explicit NumericError(const std::string& m) : Error(ExitCode::kNumeric, "numeric error", m) {}
};
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& m) : Error(ExitCode::kOutOfMemory, "out of memory", m) {}
};

// Throws E with a formatted message: fail<DataError>("{}:{}: {} columns, expected {}", path, line, n, m).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trainer
