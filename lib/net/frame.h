#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// Numbers on the wire: 4 bytes, most significant first.

namespace trainer::net {

constexpr size_t kLengthBytes = 4;

inline std::array<char, 4> encode_u32(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// `bytes` has four at least.
inline uint32_t decode_u32(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

}  // namespace trainer::net
