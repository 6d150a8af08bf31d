#pragma once

#include <cstdint>
#include <string_view>

namespace trainer {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, going on from `crc`, that of the bytes before. What TFRecord and
// S3 use too. Several gigabytes a second where the CPU has an instruction for it.
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

}  // namespace trainer
