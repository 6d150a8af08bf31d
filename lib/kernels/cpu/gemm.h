#pragma once

#include <type_traits>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/simd.h"

// Matrix products in the manner of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
// (2008): a register tile of kStripRows x kPanelColumns runs over all of k, B's panel streaming from L1 or
// L2. A step of k is one 32-bit lane: a float, or two bf16 where the CPU multiplies pairs of them
// (vdpbf16ps), accumulated in fp32.

namespace trainer::kernels::TRAINER_CPU_ISA {

constexpr int kPanelColumns = 2 * kLanes;
constexpr int kStripRows = kLanes == 16 ? 12 : 6;  // accumulators fill the registers

// How a lane of A meets a vector of B.
struct FloatStep {
  using Lane = float;
  TRAINER_INLINE Vec splat_lane(const char* p) { return splat(load_as<float>(p)); }
  TRAINER_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return a * b + sum; }
};
#if defined(__AVX512BF16__)
constexpr bool kBf16Pairs = true;
struct Bf16Step {
  TRAINER_INLINE Vec splat_lane(const char* p) { return splat(load_as<float>(p)); }
  TRAINER_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
#else
constexpr bool kBf16Pairs = false;
struct Bf16Step {
  TRAINER_INLINE Vec splat_lane(const char* p) {
    return reinterpret_cast<Vec>(splat(static_cast<uint32_t>(load_as<uint16_t>(p)) << 16));
  }
  TRAINER_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return a * b + sum; }
};
#endif
template <class T>
constexpr bool kPairs = kBf16Pairs && sizeof(T) == 2;

// C [rows, kPanelColumns] = A B, or += with `accumulate`. Row r and step s of A lie at a + r * row_bytes + s
// * step_bytes.
template <class Step, int rows>
static __attribute__((noinline)) void multiply_tile(const char* a, int64_t row_bytes, int64_t step_bytes,
                                                    const float* b, int64_t steps, float* c, int64_t ldc,
                                                    bool accumulate) {
  Vec sums[rows][2];
  // C's rows are reached one from the other: else all their addresses are computed (and spilled) at the start.
  const auto next_row = [ldc](float* row) __attribute__((always_inline)) {
    asm("" : "+r"(row));
    return row + ldc;
  };
  float* row = c;
  if (accumulate) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, row = next_row(row))
      sums[r][0] = load(row), sums[r][1] = load(row + kLanes);
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Vec{};
  }
  // Addresses of three rows share a pointer: base + {0, 1, 2} * row_bytes.
  const char* groups[(rows + 2) / 3];
#pragma GCC unroll 16
  for (int g = 0; g < (rows + 2) / 3; ++g) groups[g] = a + 3 * g * row_bytes;
  for (int64_t s = 0; s < steps; ++s) {
    const Vec b0 = load(b), b1 = load(b + kLanes);
    b += kPanelColumns;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec lane = Step::splat_lane(groups[r / 3] + r % 3 * row_bytes);
      sums[r][0] = Step::multiply_add(lane, b0, sums[r][0]);
      sums[r][1] = Step::multiply_add(lane, b1, sums[r][1]);
    }
#pragma GCC unroll 16
    for (int g = 0; g < (rows + 2) / 3; ++g) groups[g] += step_bytes;
  }
  row = c;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, row = next_row(row)) store(row, sums[r][0]), store(row + kLanes, sums[r][1]);
}

template <class Step>
TRAINER_INLINE void multiply_rows(int64_t rows, const char* a, int64_t row_bytes, int64_t step_bytes,
                                  const float* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  using Function = void (*)(const char*, int64_t, int64_t, const float*, int64_t, float*, int64_t, bool);
  static constexpr Function kFunctions[12] = {
    multiply_tile<Step, 1>,
    multiply_tile<Step, 2>,
    multiply_tile<Step, 3>,
    multiply_tile<Step, 4>,
    multiply_tile<Step, 5>,
    multiply_tile<Step, 6>,
#if defined(__AVX512F__)
    multiply_tile<Step, 7>,
    multiply_tile<Step, 8>,
    multiply_tile<Step, 9>,
    multiply_tile<Step, 10>,
    multiply_tile<Step, 11>,
    multiply_tile<Step, 12>,
#endif
  };
  kFunctions[rows - 1](a, row_bytes, step_bytes, b, steps, c, ldc, accumulate);
}

TRAINER_INLINE float to_float(float x) {
  return x;
}
TRAINER_INLINE float to_float(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  return load_as<float>(&bits);
}

// 32-bit lanes of steps of T (floats, or pairs of bf16) from kLanes columns of B's row k (and k + 1; null:
// zeros).
template <class T, class From>
TRAINER_INLINE Vec step_of_rows(const From* row, const From* next, int64_t columns) {
  const Vec low = columns >= kLanes ? load(row) : load_first(row, columns);
  if constexpr (kPairs<T>) {
    const Vec high = next == nullptr ? Vec{} : columns >= kLanes ? load(next) : load_first(next, columns);
    return reinterpret_cast<Vec>(__builtin_convertvector(to_bf16(low), UintVec) |
                                 __builtin_convertvector(to_bf16(high), UintVec) << 16);
  } else {
    return low;
  }
}

// Packs `width` (a multiple of kLanes, or at most kLanes) columns from `column` of B [k, n], rows ld apart.
template <class T, class From>
TRAINER_INLINE void pack_panel(const From* b, int64_t ld, int64_t k, int64_t n, int64_t column, float* out) {
  constexpr int kStep = kPairs<T> ? 2 : 1;
  for (int64_t row = 0; row < k; row += kStep, out += kPanelColumns) {
    const From* p = b + row * ld + column;
    for (int half = 0; half < 2; ++half) {
      const int64_t columns = n - column - half * kLanes;
      store(out + half * kLanes,
            columns <= 0 ? Vec{}
                         : step_of_rows<T>(p + half * kLanes, row + 1 < k ? p + ld + half * kLanes : nullptr,
                                           columns));
    }
  }
}

// Transposes kLanes x kLanes lanes in registers.
TRAINER_INLINE void transpose(Vec* rows) {
#pragma GCC unroll 4
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    IntVec upper, lower;
    for (int lane = 0; lane < kLanes; ++lane) {
      upper[lane] = lane & distance ? kLanes + (lane ^ distance) : lane;
      lower[lane] = lane & distance ? kLanes + lane : lane | distance;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & distance) continue;
      const Vec first = rows[i], second = rows[i + distance];
      rows[i] = __builtin_shuffle(first, second, upper);
      rows[i + distance] = __builtin_shuffle(first, second, lower);
    }
  }
}

// Packs a panel of B = W^T for W [n, k] with rows ld apart: columns of the panel are rows of W.
template <class T, class From>
TRAINER_INLINE void pack_panel_transposed(const From* w, int64_t ld, int64_t k, int64_t n, int64_t column,
                                          float* out) {
  constexpr int kStep = kPairs<T> ? 2 : 1;
  for (int half = 0; half < 2; ++half) {
    const int64_t first = column + half * kLanes;
    for (int64_t row = 0; row < k; row += kLanes * kStep) {
      Vec lanes[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        lanes[i] = Vec{};
        if (first + i >= n) continue;
        const From* p = w + (first + i) * ld + row;
        if constexpr (kPairs<T>) {
          const int64_t rest = k - row;
          const HalfVec low = to_bf16(rest >= kLanes ? load(p) : load_first(p, rest));
          const HalfVec high = to_bf16(rest >= 2 * kLanes ? load(p + kLanes)
                                       : rest <= kLanes   ? Vec{}
                                                          : load_first(p + kLanes, rest - kLanes));
          std::memcpy(&lanes[i], &low, sizeof low);
          std::memcpy(reinterpret_cast<char*>(&lanes[i]) + sizeof low, &high, sizeof high);
        } else {
          lanes[i] = k - row >= kLanes ? load(p) : load_first(p, k - row);
        }
      }
      transpose(lanes);
      const int64_t steps = (k - row + kStep - 1) / kStep;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < steps) store(out + (row / kStep + i) * kPanelColumns + half * kLanes, lanes[i]);
      }
    }
  }
}

template <class T>
void pack_weight(const float* weight, int64_t k, int64_t n, int64_t panel, float* out) {
  pack_panel<T>(weight, n, k, n, panel * kPanelColumns, out);
}
template <class T>
void pack_weight_transposed(const float* weight, int64_t k, int64_t n, int64_t panel, float* out) {
  pack_panel_transposed<T>(weight, k, k, n, panel * kPanelColumns, out);
}
template <class T>
void pack_activations(const T* x, int64_t k, int64_t n, int64_t panel, float* out) {
  pack_panel<T>(x, n, k, n, panel * kPanelColumns, out);
}

template <class T>
void pack_strip(const T* g, int64_t k, int64_t m, int64_t strip, float* out, float* column_sums) {
  constexpr int kStep = kPairs<T> ? 2 : 1;
  const int64_t first = strip * kStripRows;
  for (int part = 0; part < kStripRows;
       part += kLanes) {  // the last vector of a strip overlaps the next step
    const int64_t width = kStripRows - part < kLanes ? kStripRows - part : kLanes;
    const int64_t columns = m - first - part < width ? m - first - part : width;
    if (columns <= 0) {
      for (int64_t s = 0; s < (k + kStep - 1) / kStep; ++s)
        store_first(out + s * kStripRows + part, Vec{}, width);
      continue;
    }
    Vec total{};
    for (int64_t row = 0; row < k; row += kStep) {
      const T* p = g + row * m + first + part;
      // Whole vectors where what they read too much is there and what they write too much is written over.
      const bool whole = kStripRows < kLanes && (k - row - kStep) * m + columns >= kLanes;
      const T* next = row + 1 < k ? p + m : nullptr;
      const Vec lanes = step_of_rows<T>(p, next, whole ? kLanes : columns);
      total += whole || columns == kLanes ? load(p) : load_first(p, columns);
      if (kStep == 2 && next != nullptr)
        total += whole || columns == kLanes ? load(next) : load_first(next, columns);
      float* lane_out = out + row / kStep * kStripRows + part;
      if (whole) {
        store(lane_out, lanes);  // what is over is written by the next step
      } else {
        store_first(lane_out, lanes, width);
      }
    }
    float sums[kLanes];
    store(sums, total);
    if (column_sums == nullptr) continue;
    for (int64_t i = 0; i < columns; ++i) column_sums[first + part + i] += sums[i];
  }
}

// Adds a tile's bias, and writes it and its activation.
template <class T>
TRAINER_INLINE void finish_tile(const GemmParams<T>& p, const float* tile, int64_t row, int64_t rows,
                                int64_t column, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* sums = tile + r * kPanelColumns;
    const int64_t offset = (row + r) * p.n + column;
    const auto write = [&](auto activate) __attribute__((always_inline)) {
      for_vectors(
          columns, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
            Vec v = load(sums + i);
            if (p.bias != nullptr) v += load_some(p.bias + column + i);
            if (p.activation == Activation::kRelu) v = relu(v);
            store_some(p.c + offset + i, v);
            activate(offset + i, v, store_some);
          });
    };
    switch (p.activation) {
      case Activation::kNone:
      case Activation::kRelu:
        write([](int64_t, Vec, auto) {});
        break;
      case Activation::kGelu:
        write([&](int64_t at, Vec v, auto store_some)
                  __attribute__((always_inline)) { store_some(p.activated + at, gelu(v)); });
        break;
      case Activation::kGeluTanh:
        write([&](int64_t at, Vec v, auto store_some)
                  __attribute__((always_inline)) { store_some(p.activated + at, gelu_tanh(v)); });
        break;
    }
  }
}

template <class T>
void gemm(const GemmParams<T>& p, int64_t first_strip, int64_t last_strip, int64_t first_panel,
          int64_t last_panel) {
  using Step = std::conditional_t<sizeof(T) == 2, Bf16Step, FloatStep>;
  using StripStep = std::conditional_t<kPairs<T>, Step, FloatStep>;
  constexpr int kStep = kPairs<T> ? 2 : 1;
  const int64_t steps = (p.k + kStep - 1) / kStep;
  alignas(64) float tile[kStripRows * kPanelColumns];
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    const float* b = p.b_panels + panel * steps * kPanelColumns;
    const int64_t column = panel * kPanelColumns;
    const int64_t columns = p.n - column < kPanelColumns ? p.n - column : kPanelColumns;
    for (int64_t strip = first_strip; strip < last_strip; ++strip) {
      const int64_t row = strip * kStripRows, rows = p.m - row < kStripRows ? p.m - row : kStripRows;
      const bool is_direct = p.c_float != nullptr && columns == kPanelColumns;
      float* const out = is_direct ? p.c_float + row * p.ldc + column : tile;
      const int64_t ld = is_direct ? p.ldc : kPanelColumns;
      const bool accumulate = is_direct && p.accumulate;
      if (p.a_strips != nullptr) {
        multiply_rows<StripStep>(rows, reinterpret_cast<const char*>(p.a_strips + strip * steps * kStripRows),
                                 4, 4 * kStripRows, b, steps, out, ld, accumulate);
      } else {
        constexpr auto kSize = static_cast<int64_t>(sizeof(T));
        multiply_rows<Step>(rows, reinterpret_cast<const char*>(p.a + row * p.lda), p.lda * kSize,
                            kSize * kStep, b, steps, out, ld, accumulate);
      }
      if (is_direct) continue;
      if (p.c_float == nullptr) {
        finish_tile(p, tile, row, rows, column, columns);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* c = p.c_float + (row + r) * p.ldc + column;
        for (int64_t i = 0; i < columns; ++i) {
          c[i] = (p.accumulate ? c[i] : 0.0F) + tile[r * kPanelColumns + i];
        }
      }
    }
  }
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
