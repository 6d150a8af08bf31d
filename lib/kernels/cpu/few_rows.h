#pragma once

#include "kernels/cpu/simd.h"

// y = x W^T + b of few rows x, as in decoding: the time is that of reading the weights once, in the order in which they
// lie in memory.

namespace trainer::kernels::TRAINER_CPU_ISA {

constexpr int kMostRows = 4;  // at a time: they stay in the L1 cache

template <class T, int rows>
static __attribute__((noinline)) void few_rows_of(const FewRowsParams<T>& p, int64_t row, int64_t begin,
                                                  int64_t end) {
  const T* x = p.x + row * p.k;
  for (int64_t column = begin; column < end; ++column) {
    const float* w = p.weight + column * p.k;
    Vec sums[rows] = {};
    for_vectors(
        p.k, [&](int64_t i, auto load_some, auto) __attribute__((always_inline)) {
          const Vec of_w = load_some(w + i);
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) sums[r] += load_some(x + r * p.k + i) * of_w;
        });
    const float bias = p.bias == nullptr ? 0 : p.bias[column];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) p.y[(row + r) * p.n + column] = sum(sums[r]) + bias;
  }
}

template <class T>
void multiply_few_rows(const FewRowsParams<T>& p, int64_t begin, int64_t end) {
  using Function = void (*)(const FewRowsParams<T>&, int64_t, int64_t, int64_t);
  static constexpr Function kFunctions[kMostRows] = {few_rows_of<T, 1>, few_rows_of<T, 2>, few_rows_of<T, 3>,
                                                     few_rows_of<T, 4>};
  for (int64_t row = 0; row < p.m; row += kMostRows) {
    const int64_t rows = p.m - row < kMostRows ? p.m - row : kMostRows;
    kFunctions[rows - 1](p, row, begin, end);
  }
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
