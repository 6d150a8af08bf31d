#pragma once

#include <string>

#include "net/handshake.h"

namespace trainer::net {

// Why there is no connection.
struct Failure {
  enum class Kind { kName, kRefused, kNoRoute, kNoAnswer, kClosed, kOther, kNotOurs };
  Kind kind = Kind::kOther;
  std::string text;                                         // follows "gpu7:29500": ": connection refused"
  bool is_final() const { return kind == Kind::kNotOurs; }  // trying again will not help
};

// The system's reason for people, in small letters, as all others are.
std::string system_reason(int error);

}  // namespace trainer::net
