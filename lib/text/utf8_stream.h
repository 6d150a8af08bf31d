#pragma once

#include <string>
#include <string_view>

namespace trainer::text {

// Bytes that come in pieces to text for a terminal: a character is held back until all its bytes are there, and
// each ill-formed sequence becomes U+FFFD (as Python's errors="replace").
class Utf8Stream {
 public:
  // What can be printed after these bytes.
  std::string push(std::string_view bytes);
  // What is left at the end: U+FFFD for a character that never was completed.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace trainer::text
