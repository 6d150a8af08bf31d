#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace trainer::dist {

// Who waits, and how long at most: what every message about a failed collective names.
struct Waiting {
  int64_t rank = 0;
  int64_t size = 1;
  double timeout_s = 0;
};

// Called in the handler of `cause`. Throws DistributedError: this rank, the operation, the cause, and where a
// peer closed its connection or did not come in time, what that probably means. Errors of ours and lack of
// memory are no failure of the network and pass as they are.
[[noreturn]] void fail_collective(const Waiting& who, const char* operation, const std::exception& cause);

// Runs `f`, with any exception turned into fail_collective's.
template <class F>
auto collective(const Waiting& who, const char* operation, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const std::exception& e) {
    fail_collective(who, operation, e);
  }
}

// NCCL's watchdog throws in a thread of its own (the main one may wait for a kernel that never ends), which
// ends the process. Installs a std::terminate handler that then says what failed, as fail_collective does,
// and exits with DistributedError's code; anything else goes to the handler there was.
void explain_watchdog(const Waiting& who);

// c10d logs every failed try with a backtrace, between lines of ours; our errors say it once. TORCH_CPP_LOG_LEVEL brings
// the lines back.
void quiet_c10d();

// The cause as one line without a backtrace.
std::string first_line(const std::exception& cause);

}  // namespace trainer::dist
