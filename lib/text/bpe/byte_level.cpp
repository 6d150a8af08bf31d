#include "text/bpe/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace trainer::text {
namespace {

// Visible characters of Latin-1 are themselves, the other 68 bytes are U+0100 and what follows.
constexpr bool is_visible(char32_t c) {
  return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 0x144> to_byte{};

  constexpr Alphabet() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      of_byte[byte] = is_visible(byte) ? byte : next++;
      to_byte[of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string byte_to_alphabet(uint8_t byte) {
  std::string out;
  append_utf8(kAlphabet.of_byte[byte], out);
  return out;
}

std::optional<std::string> bytes_from_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const char32_t c = next_code_point(token, i);
    if (c >= kAlphabet.to_byte.size() || kAlphabet.to_byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.to_byte[c]));
  }
  return bytes;
}

}  // namespace trainer::text
