#pragma once

#include <sys/types.h>

#include <string>

namespace trainer::process {

// Replaced by the module's own.
inline std::string stacks_of(pid_t, double) {
  return "";
}

}  // namespace trainer::process
