#pragma once

#include "embedding/cpu/kernels.h"
#include "kernels/cpu/simd.h"

// Rows of fp32, fp16 and bf16 as vectors of floats, and rounding to them.

namespace trainer::embedding::TRAINER_CPU_ISA {

using namespace kernels::TRAINER_CPU_ISA;  // NOLINT: the vectors of this instruction set
using kernels::Bf16;

#if defined(__AVX512F__)
TRAINER_INLINE Vec from_fp16(HalfVec v) {
  return reinterpret_cast<Vec>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(v)));
}
TRAINER_INLINE HalfVec to_fp16(Vec v) {
  return reinterpret_cast<HalfVec>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__F16C__)
TRAINER_INLINE Vec from_fp16(HalfVec v) {
  return reinterpret_cast<Vec>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(v)));
}
TRAINER_INLINE HalfVec to_fp16(Vec v) {
  return reinterpret_cast<HalfVec>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
TRAINER_INLINE Vec from_fp16(HalfVec v) {
  const UintVec bits = __builtin_convertvector(v, UintVec);
  // The exponent is rebiased by a product, which also makes subnormal numbers normal; infinity and NaN are set apart.
  const Vec finite = reinterpret_cast<Vec>((bits & 0x7FFF) << 13) * splat(0x1p112F);
  const UintVec magnitude =
      (bits & 0x7C00) == 0x7C00 ? (bits & 0x3FF) << 13 | 0x7F800000 : reinterpret_cast<UintVec>(finite);
  return reinterpret_cast<Vec>(magnitude | (bits & 0x8000) << 16);
}
TRAINER_INLINE HalfVec to_fp16(Vec v) {
  const UintVec bits = reinterpret_cast<UintVec>(v), magnitude = bits & 0x7FFFFFFF;
  // From 65520 on it rounds to infinity. Below 2^-14 adding 0.5 leaves a multiple of 2^-24 in the last bits.
  const UintVec normal = (magnitude + 0xFFF + (magnitude >> 13 & 1) - (112U << 23)) >> 13;
  const UintVec subnormal =
      reinterpret_cast<UintVec>(reinterpret_cast<Vec>(magnitude) + splat(0.5F)) - 0x3F000000U;
  UintVec half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x477FF000U ? splat(0x7C00U) : half;
  half = magnitude > 0x7F800000U ? splat(0x7E00U) : half;
  return __builtin_convertvector(half | (bits >> 16 & 0x8000), HalfVec);
}
#endif

TRAINER_INLINE Vec widen(const Bf16*, HalfVec v) {
  return reinterpret_cast<Vec>(__builtin_convertvector(v, UintVec) << 16);
}
TRAINER_INLINE Vec widen(const Fp16*, HalfVec v) {
  return from_fp16(v);
}
TRAINER_INLINE HalfVec narrow(const Bf16*, Vec v) {
  return to_bf16(v);
}
TRAINER_INLINE HalfVec narrow(const Fp16*, Vec v) {
  return to_fp16(v);
}

// The first n <= kLanes elements of a row; other lanes are zero, and not written.
#if defined(__AVX512F__)
TRAINER_INLINE Vec load_row(const float* p, int64_t n) {
  return load_first(p, n);
}
template <class Half>
TRAINER_INLINE Vec load_row(const Half* p, int64_t n) {
  return widen(p, reinterpret_cast<HalfVec>(_mm256_maskz_loadu_epi16(first_lanes(n), p)));
}
TRAINER_INLINE void store_row(float* p, Vec v, int64_t n) {
  store_first(p, v, n);
}
template <class Half>
TRAINER_INLINE void store_row(Half* p, Vec v, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), reinterpret_cast<__m256i>(narrow(p, v)));
}
#else
TRAINER_INLINE Vec load_row(const float* p, int64_t n) {
  return n == kLanes ? load(p) : load_first(p, n);
}
template <class Half>
TRAINER_INLINE Vec load_row(const Half* p, int64_t n) {
  HalfVec v{};
  std::memcpy(&v, p, n == kLanes ? sizeof v : static_cast<size_t>(n) * sizeof(Half));
  return widen(p, v);
}
TRAINER_INLINE void store_row(float* p, Vec v, int64_t n) {
  n == kLanes ? store(p, v) : store_first(p, v, n);
}
template <class Half>
TRAINER_INLINE void store_row(Half* p, Vec v, int64_t n) {
  const HalfVec half = narrow(p, v);
  std::memcpy(p, &half, n == kLanes ? sizeof half : static_cast<size_t>(n) * sizeof(Half));
}
#endif

// v moved to one of its two neighbours in T, up with the probability of its part of the way there. 16 random bits a lane.
TRAINER_INLINE Vec round_stochastically(const float*, Vec v, UintVec) {
  return v;
}
TRAINER_INLINE Vec round_stochastically(const Bf16*, Vec v, UintVec random) {
  const UintVec bits = reinterpret_cast<UintVec>(v);
  const UintVec rounded = (bits + random) & 0xFFFF0000U;
  const UintVec magnitude = bits & 0x7FFFFFFFU;
  return magnitude < splat(0x7F800000U) ? reinterpret_cast<Vec>(rounded) : v;  // infinity and NaN stay
}
// Below 2^-14 fp16's steps are 2^-24: adding 2^-14 makes them those of a normal number. Of the random bits it takes the upper 13,
// as many as fp16 lacks of fp32.
TRAINER_INLINE Vec round_stochastically(const Fp16*, Vec v, UintVec random) {
  const UintVec bits = reinterpret_cast<UintVec>(v), magnitude = bits & 0x7FFFFFFFU;
  const Vec shift = magnitude < splat(0x38800000U) ? splat(0x1p-14F) : Vec{};
  const UintVec shifted = reinterpret_cast<UintVec>(reinterpret_cast<Vec>(magnitude) + shift);
  const UintVec rounded = (shifted + (random >> 3)) & 0xFFFFE000U;
  const UintVec back = reinterpret_cast<UintVec>(reinterpret_cast<Vec>(rounded) - shift);
  return magnitude < splat(0x7F800000U) ? reinterpret_cast<Vec>(back | (bits & 0x80000000U)) : v;
}

}  // namespace trainer::embedding::TRAINER_CPU_ISA
