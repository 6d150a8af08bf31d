#include "dist/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>

#include "core/error.h"
#include "report/worker_error.h"

namespace trainer::dist {
namespace {

// Gloo, the store and NCCL each have their own words.
bool contains_any(std::string text, std::initializer_list<const char*> words) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(words.begin(), words.end(),
                     [&](const char* w) { return text.find(w) != std::string::npos; });
}

Waiting terminating;  // std::terminate takes no argument
std::terminate_handler other_handler = nullptr;

[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const c10::DistError& e) {
    try {
      fail_collective(terminating, "NCCL", e);
    } catch (const std::exception& said) {
      std::_Exit(
          report::report_worker_error(said, std::nullopt));  // no destructors: they would wait for the peers
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the other handler reports it
  }
  other_handler();
  std::abort();
}

}  // namespace

void explain_watchdog(const Waiting& who) {
  terminating = who;
  if (std::get_terminate() != on_terminate) other_handler = std::set_terminate(on_terminate);
}

void quiet_c10d() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 3;  // fatal
  });
}

std::string first_line(const std::exception& cause) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&cause);
  std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : cause.what();
  text = text.substr(0, text.find('\n'));
  // "[/path/file.cc:12] ..." of Gloo: the path is of the machine that built LibTorch
  if (text.starts_with("[/")) {
    if (const size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

void fail_collective(const Waiting& who, const char* operation, const std::exception& cause) {
  if (dynamic_cast<const Error*>(&cause) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&cause) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&cause) != nullptr) {
    throw;
  }
  const std::string text = first_line(cause);
  std::string hint;
  if (contains_any(text, {"closed by peer", "reset by peer", "broken pipe", "connection was closed",
                          "connection closed", "remote process exited", "failed to recv"})) {
    hint = "; a peer has probably died: look for the rank that failed first";
  } else if (contains_any(text, {"timed out", "timeout"})) {
    hint =
        fmt::format("; not all ranks came within {} s (parallel.timeout_s): look for one that hangs or lags",
                    who.timeout_s);
  }
  fail<DistributedError>("rank {} of {}: {} failed: {}{}", who.rank, who.size, operation, text, hint);
}

}  // namespace trainer::dist
