#pragma once

#include <cstdint>

// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011), and how dropout draws from it. Plain constexpr code: the CPU kernels vectorize it, the CUDA
// kernel compiles it as is.

namespace trainer::kernels {

struct PhiloxBlock {
  uint32_t words[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  auto [c0, c1, c2, c3] = counter.words;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c0, product1 = uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// Dropout compares 16 random bits an element with a threshold: the probability is p rounded to a multiple of
// 2^-16, and the scale is the exact inverse of what is kept.
constexpr uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(p * 65536 + 0.5);
}
constexpr float dropout_scale(uint32_t threshold) {
  return 65536.0F / static_cast<float>(65536 - threshold);
}

// The random bits of (row with this key, column). A block serves 8 columns, 16 apart, so that 16 neighbouring
// columns are the same word and half of 16 neighbouring blocks: no shuffle in SIMD code.
constexpr uint32_t dropout_bits(uint64_t row_key, uint32_t site, uint32_t head, uint32_t column) {
  const uint32_t block = column / 128 * 16 + column % 16, half = column % 128 / 16;
  const PhiloxBlock random = philox4x32({{block, head, site, 0}}, static_cast<uint32_t>(row_key),
                                        static_cast<uint32_t>(row_key >> 32));
  return random.words[half / 2] >> (half % 2 * 16) & 0xFFFF;
}

}  // namespace trainer::kernels
