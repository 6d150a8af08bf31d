#pragma once

#include <cstdio>
#include <exception>

#include "core/error.h"

namespace trainer::app {

// In a catch block: prints the error and returns its exit code. The executable and its libraries each have one of their
// own: the executable's C++ run time is linked into it, so that no exception may pass from one to the other.
inline int report_error() {
  try {
    throw;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n", error.what());
  } catch (...) {
    fmt::print(stderr, "internal error: an exception of unknown type\n");
  }
  return static_cast<int>(ExitCode::kInternal);
}

}  // namespace trainer::app
