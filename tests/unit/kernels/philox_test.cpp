#include "kernels/philox.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace trainer::kernels;

static bool equals(const PhiloxBlock& block, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
  return block.words[0] == w0 && block.words[1] == w1 && block.words[2] == w2 && block.words[3] == w3;
}

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  CHECK(equals(philox4x32({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  CHECK(equals(philox4x32({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
               0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  CHECK(equals(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
               0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST_CASE(
    "Dropout keeps within 5 sigma of 1 - p, and its scale is the exact inverse of the quantized "
    "probability") {
  for (const double p : {0.1, 0.5, 0.9}) {
    const uint32_t threshold = dropout_threshold(p);
    const int64_t rows = 200, columns = 500;
    int64_t kept = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        kept += dropout_bits(static_cast<uint64_t>(row), 3, 1, static_cast<uint32_t>(column)) >= threshold;
      }
    }
    const double keep = 1 - threshold / 65536.0, n = static_cast<double>(rows * columns);
    CHECK(std::abs(static_cast<double>(kept) - n * keep) < 5 * std::sqrt(n * keep * (1 - keep)));
    CHECK(dropout_scale(threshold) == static_cast<float>(1 / keep));
    CHECK(std::abs(keep - (1 - p)) <= 0.5 / 65536);
  }
}
