#include "text/utf8_stream.h"

#include <cstddef>
#include <cstdint>

#include "text/unicode.h"

namespace trainer::text {
namespace {

// The number of bytes at the end that begin a character but don't end it; 0..3.
size_t incomplete_suffix(std::string_view text) {
  const auto byte = [&](size_t from_end) { return static_cast<uint8_t>(text[text.size() - from_end]); };
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const uint8_t lead = byte(n);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                          : lead >= 0xE0 && lead <= 0xEF ? 3
                          : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                         : 1;
    if (length <= n) return 0;
    // Neither overlong, nor a surrogate, nor beyond U+10FFFF.
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return n == 1 || (byte(n - 1) >= low && byte(n - 1) <= high) ? n : 0;
  }
  return 0;
}

void append_replaced(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) append_utf8(next_code_point(text, i), out);
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  const size_t whole = pending_.size() - incomplete_suffix(pending_);
  std::string out;
  append_replaced(std::string_view(pending_).substr(0, whole), out);
  pending_.erase(0, whole);
  return out;
}

std::string Utf8Stream::finish() {
  std::string out;
  append_replaced(pending_, out);
  pending_.clear();
  return out;
}

}  // namespace trainer::text
