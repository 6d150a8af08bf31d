#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer::generate {

// Text that comes in pieces, up to the first of some strings. What may be the beginning of one is held back until it is
// known.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}
  // What is sure to come before any stop string. After `stopped()` nothing more.
  std::string push(std::string_view text);
  // What was held back, at the end of the text.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace trainer::generate
