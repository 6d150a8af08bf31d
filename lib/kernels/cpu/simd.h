#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/kernels.h"
#include "kernels/philox.h"

// Vectors of kLanes floats for the instruction set that the file is compiled for. Everything is always_inline
// or a template in the instruction set's own namespace, and no std:: template is used: what the linker shares
// between files must not hold instructions that another machine lacks.

#define TRAINER_INLINE static inline __attribute__((always_inline))

namespace trainer::kernels::TRAINER_CPU_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(4 * kLanes)));
using IntVec = int32_t __attribute__((vector_size(4 * kLanes)));
using UintVec = uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfVec = uint16_t __attribute__((vector_size(2 * kLanes)));

TRAINER_INLINE Vec splat(float x) {
  return Vec{} + x;
}
TRAINER_INLINE UintVec splat(uint32_t x) {
  return UintVec{} + x;
}
template <class To, class From>
TRAINER_INLINE To load_as(const From* p) {
  To v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
TRAINER_INLINE Vec load(const float* p) {
  return load_as<Vec>(p);
}
TRAINER_INLINE Vec load(const Bf16* p) {
  const UintVec wide = __builtin_convertvector(load_as<HalfVec>(p), UintVec) << 16;
  return reinterpret_cast<Vec>(wide);
}
TRAINER_INLINE void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}
// Rounds to nearest, ties to even; NaN stays NaN.
TRAINER_INLINE HalfVec to_bf16(Vec v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<HalfVec>(_mm512_cvtneps_pbh(v));
#else
  const UintVec bits = reinterpret_cast<UintVec>(v);
  const UintVec rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return __builtin_convertvector(v == v ? rounded : splat(0x7FC0U), HalfVec);
#endif
}
TRAINER_INLINE void store(Bf16* p, Vec v) {
  const HalfVec half = to_bf16(v);
  std::memcpy(p, &half, sizeof half);
}
// The first n < kLanes elements; the rest is zero, or not written.
#if defined(__AVX512F__)
TRAINER_INLINE __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>((1U << n) - 1);
}
TRAINER_INLINE Vec load_first(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
TRAINER_INLINE Vec load_first(const Bf16* p, int64_t n) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
  return reinterpret_cast<Vec>(_mm512_slli_epi32(wide, 16));
}
TRAINER_INLINE void store_first(float* p, Vec v, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
TRAINER_INLINE void store_first(Bf16* p, Vec v, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), reinterpret_cast<__m256i>(to_bf16(v)));
}
#else
template <class T>
TRAINER_INLINE Vec load_first(const T* p, int64_t n) {
  T buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return load(buffer);
}
template <class T>
TRAINER_INLINE void store_first(T* p, Vec v, int64_t n) {
  T buffer[kLanes];
  store(buffer, v);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(T));
}
#endif
// Calls body(i, load, store) for vectors at i = 0, kLanes, ... of n elements, the last one partial.
template <class Body>
TRAINER_INLINE void for_vectors(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    body(
        i, [](const auto* p) __attribute__((always_inline)) { return load(p); },
        [](auto* p, Vec v) __attribute__((always_inline)) { store(p, v); });
  }
  if (i < n) {
    const int64_t rest = n - i;
    body(
        i, [rest](const auto* p) { return load_first(p, rest); },
        [rest](auto* p, Vec v) { store_first(p, v, rest); });
  }
}

// Lanes of columns from `first` on that are below n.
TRAINER_INLINE IntVec is_below(int64_t first, int64_t n) {
  IntVec lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes < IntVec{} + static_cast<int32_t>(n - first);
}

TRAINER_INLINE float sum(Vec v) {
  float total[kLanes];
  store(total, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) total[i] += total[i + step];
  }
  return total[0];
}
TRAINER_INLINE float max(Vec v) {
  float result = v[0];
  for (int i = 1; i < kLanes; ++i) result = v[i] > result ? v[i] : result;
  return result;
}

TRAINER_INLINE Vec sqrt(Vec v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_sqrt_ps(reinterpret_cast<__m512>(v)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_sqrt_ps(reinterpret_cast<__m256>(v)));
#else
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

// e^x to 2 units in the last place: 2^n times a polynomial (Cephes expf). Below -87.3 it is 0 or nearly.
TRAINER_INLINE Vec exp(Vec x) {
  x = x < splat(-87.3F) ? splat(-87.3F) : x;
  x = x > splat(88.3F) ? splat(88.3F) : x;
  const Vec shifter = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = (x * splat(1.44269504F) + shifter) - shifter;
  const Vec r = (x - n * splat(0.693359375F)) - n * splat(-2.12194440e-4F);
  Vec y = splat(1.9875691500e-4F);
  y = y * r + splat(1.3981999507e-3F);
  y = y * r + splat(8.3334519073e-3F);
  y = y * r + splat(4.1665795894e-2F);
  y = y * r + splat(1.6666665459e-1F);
  y = y * r + splat(5.0000001201e-1F);
  y = y * r * r + r + splat(1.0F);
  const IntVec power = (__builtin_convertvector(n, IntVec) + 127) << 23;
  return y * reinterpret_cast<Vec>(power);
}

// The normal distribution's cumulative probability and density at x. Abramowitz and Stegun 7.1.26, absolute
// error below 1.5e-7; the exponential serves both.
struct Normal {
  Vec cumulative, density;
};
TRAINER_INLINE Normal normal(Vec x) {
  const Vec negative_abs = x < splat(0.0F) ? x : -x;
  const Vec e = exp(x * x * splat(-0.5F));
  const Vec t = splat(1.0F) / (splat(1.0F) - negative_abs * splat(0.3275911F * 0.70710678F));
  Vec y = splat(1.061405429F);
  y = y * t + splat(-1.453152027F);
  y = y * t + splat(1.421413741F);
  y = y * t + splat(-0.284496736F);
  y = y * t + splat(0.254829592F);
  const Vec tail = splat(0.5F) * y * t * e;  // probability above |x|
  return {x < splat(0.0F) ? tail : splat(1.0F) - tail, e * splat(0.39894228F)};
}

TRAINER_INLINE Vec sigmoid(Vec x) {
  return splat(1.0F) / (splat(1.0F) + exp(-x));
}

// The 64-bit products of 32-bit lanes, as high and low halves.
struct Product {
  UintVec high, low;
};
TRAINER_INLINE Product multiply(UintVec a, uint32_t b) {
#if defined(__AVX512F__)
  const __m512i x = reinterpret_cast<__m512i>(a), m = _mm512_set1_epi32(static_cast<int>(b));
  const __m512i even = _mm512_mul_epu32(x, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), m);
  return {reinterpret_cast<UintVec>(_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd)),
          reinterpret_cast<UintVec>(_mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32)))};
#elif defined(__AVX2__)
  const __m256i x = reinterpret_cast<__m256i>(a), m = _mm256_set1_epi32(static_cast<int>(b));
  const __m256i even = _mm256_mul_epu32(x, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
  return {reinterpret_cast<UintVec>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA)),
          reinterpret_cast<UintVec>(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA))};
#else
  Product product;
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t wide = static_cast<uint64_t>(a[i]) * b;
    product.high[i] = static_cast<uint32_t>(wide >> 32);
    product.low[i] = static_cast<uint32_t>(wide);
  }
  return product;
#endif
}

// Random bits by place, 16 a column: of a group of columns of a row, Philox's blocks that have these words of the counter behind
// the block's number (philox.h says which block and half is a column's).
constexpr int64_t kGroup = 128;
struct PhiloxRow {
  uint64_t key;
  uint32_t counter1, counter2, counter3;
};
TRAINER_INLINE void philox_group(const PhiloxRow& row, uint32_t group, uint16_t* bits) {
  for (int lane = 0; lane < 16; lane += kLanes) {
    UintVec c0, c1 = splat(row.counter1), c2 = splat(row.counter2), c3 = splat(row.counter3);
    for (int i = 0; i < kLanes; ++i) c0[i] = group * 16 + static_cast<uint32_t>(lane + i);
    uint32_t key0 = static_cast<uint32_t>(row.key), key1 = static_cast<uint32_t>(row.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const Product p0 = multiply(c0, kPhiloxMultiplier0), p1 = multiply(c2, kPhiloxMultiplier1);
      c0 = p1.high ^ c1 ^ key0;
      c1 = p1.low;
      c2 = p0.high ^ c3 ^ key1;
      c3 = p0.low;
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    const UintVec words[4] = {c0, c1, c2, c3};
    for (int word = 0; word < 4; ++word) {
      const HalfVec low = __builtin_convertvector(words[word], HalfVec);
      const HalfVec high = __builtin_convertvector(words[word] >> 16, HalfVec);
      std::memcpy(bits + word * 32 + lane, &low, sizeof low);
      std::memcpy(bits + word * 32 + 16 + lane, &high, sizeof high);
    }
  }
}
// Dropout's.
struct DropoutRow {
  uint64_t key;
  uint32_t site, head;
};
TRAINER_INLINE void fill_group(const DropoutRow& row, uint32_t group, uint16_t* bits) {
  philox_group({row.key, row.head, row.site, 0}, group, bits);
}
// 0 or scale, from bits.
TRAINER_INLINE Vec dropout_factor(const uint16_t* bits, uint32_t threshold, float scale) {
  const UintVec wide = __builtin_convertvector(load_as<HalfVec>(bits), UintVec);
  return wide >= splat(threshold) ? splat(scale) : splat(0.0F);
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
