#include "records/murmur.h"

#include <bit>
#include <cstring>

namespace trainer::records {
namespace {

constexpr uint64_t kC1 = 0x87c37b91114253d5ULL, kC2 = 0x4cf5ad432745937fULL;

uint64_t mix1(uint64_t k) {
  return std::rotl(k * kC1, 31) * kC2;
}

uint64_t mix2(uint64_t k) {
  return std::rotl(k * kC2, 33) * kC1;
}

uint64_t finish(uint64_t k) {
  k = (k ^ (k >> 33)) * 0xff51afd7ed558ccdULL;
  k = (k ^ (k >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return k ^ (k >> 33);
}

}  // namespace

uint64_t murmur(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  const uint64_t size = bytes.size();
  uint64_t h1 = 0, h2 = 0, k[2];
  while (bytes.size() >= sizeof k) {
    std::memcpy(k, bytes.data(), sizeof k);
    bytes.remove_prefix(sizeof k);
    h1 = (std::rotl(h1 ^ mix1(k[0]), 27) + h2) * 5 + 0x52dce729;
    h2 = (std::rotl(h2 ^ mix2(k[1]), 31) + h1) * 5 + 0x38495ab5;
  }
  if (!bytes.empty()) {
    k[0] = k[1] = 0;
    std::memcpy(k, bytes.data(), bytes.size());
    h1 ^= mix1(k[0]);
    h2 ^= mix2(k[1]);
  }
  h1 ^= size;
  h2 ^= size;
  h1 += h2;
  h2 += h1;
  h1 = finish(h1);
  h2 = finish(h2);
  return h1 + h2;
}

}  // namespace trainer::records
