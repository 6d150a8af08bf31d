#include "core/crc32c.h"

#include <array>
#include <cstring>

namespace trainer {
namespace {

// tables[k][b]: the CRC of byte b followed by k zero bytes ("slicing by 8").
constexpr auto kTables = [] {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) * kPolynomial);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  }
  return tables;
}();

uint64_t load_word(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint32_t by_tables(const char* at, size_t size, uint32_t crc) {
  for (; size >= 8; at += 8, size -= 8) {
    const uint64_t word = load_word(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*at)) & 0xff];
  return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t by_instruction(const char* at, size_t size, uint32_t crc) {
  uint64_t wide = crc;
  for (; size >= 8; at += 8, size -= 8) wide = __builtin_ia32_crc32di(wide, load_word(at));
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; ++at, --size) crc = __builtin_ia32_crc32qi(crc, static_cast<uint8_t>(*at));
  return crc;
}
const auto kUpdate = __builtin_cpu_supports("sse4.2") ? by_instruction : by_tables;
#else
constexpr auto kUpdate = by_tables;
#endif

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
  return ~kUpdate(bytes.data(), bytes.size(), ~crc);
}

}  // namespace trainer
