#include "generate/stop_strings.h"

#include <algorithm>
#include <utility>

namespace trainer::generate {

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  pending_ += text;
  size_t end = std::string::npos;
  for (const std::string& string : strings_) end = std::min(end, pending_.find(string));
  if (end != std::string::npos) {
    stopped_ = true;
  } else {
    size_t held = 0;
    for (const std::string& string : strings_) {
      for (size_t n = std::min(string.size() - 1, pending_.size()); n > held; --n) {
        if (pending_.compare(pending_.size() - n, n, string, 0, n) == 0) held = n;
      }
    }
    end = pending_.size() - held;
  }
  std::string sure = pending_.substr(0, end);
  pending_.erase(0, end);
  return sure;
}

std::string StopStrings::finish() {
  return stopped_ ? "" : std::exchange(pending_, "");
}

}  // namespace trainer::generate
