#pragma once

#include "kernels/cpu/simd.h"

namespace trainer::kernels::TRAINER_CPU_ISA {

// Calls body(i, n, bits) for groups of a row's columns, with their dropout bits (null when dropout is off).
template <class Body>
TRAINER_INLINE void for_groups(int64_t row, int64_t columns, const DropoutParams& dropout, Body body) {
  alignas(64) uint16_t bits[kGroup];
  for (int64_t i = 0; i < columns; i += kGroup) {
    if (dropout.threshold > 0) {
      fill_group({static_cast<uint64_t>(dropout.row_keys[row]), dropout.site, 0},
                 static_cast<uint32_t>(i / kGroup), bits);
    }
    body(i, columns - i < kGroup ? columns - i : kGroup, bits);
  }
}

template <class T>
void dropout(const T* x, T* y, int64_t columns, const DropoutParams& params, int64_t first_row,
             int64_t last_row) {
  for (int64_t row = first_row; row < last_row; ++row) {
    for_groups(row, columns, params, [&](int64_t start, int64_t n, const uint16_t* bits) {
      const T* from = x + row * columns + start;
      T* to = y + row * columns + start;
      for_vectors(
          n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
            store_some(to + i,
                       load_some(from + i) * dropout_factor(bits + i, params.threshold, params.scale));
          });
    });
  }
}

// dropout(x) + residual of a row, to `sum`; returns the mean.
template <class T>
TRAINER_INLINE float add_row(const LayerNormParams<T>& p, int64_t row, float* sums) {
  Vec total{};
  for_groups(row, p.columns, p.dropout, [&](int64_t start, int64_t n, const uint16_t* bits) {
    const T* x = p.x + row * p.columns + start;
    const float* residual = p.residual + row * p.columns + start;
    for_vectors(
        n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          Vec v = load_some(x + i);
          if (p.dropout.threshold > 0) v *= dropout_factor(bits + i, p.dropout.threshold, p.dropout.scale);
          v += load_some(residual + i);
          store_some(sums + start + i, v);
          total += v;
        });
  });
  return sum(total) / static_cast<float>(p.columns);
}

// The sum over a row of (h - mean)².
TRAINER_INLINE float square_sum(const float* h, int64_t columns, float mean) {
  const int64_t whole = columns / kLanes * kLanes;
  Vec squares{};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Vec v = load(h + i) - mean;
    squares += v * v;
  }
  float total = sum(squares);
  for (int64_t i = whole; i < columns; ++i) total += (h[i] - mean) * (h[i] - mean);
  return total;
}

// Where a weight's and a bias's gradients are summed.
inline void clear(int64_t columns, float* dweight, float* dbias) {
  for_vectors(columns, [&](int64_t i, auto, auto store_some) {
    store_some(dweight + i, Vec{});
    store_some(dbias + i, Vec{});
  });
}

template <class T>
void layer_norm_forward(const LayerNormParams<T>& p, int64_t first_row, int64_t last_row) {
  for (int64_t row = first_row; row < last_row; ++row) {
    float* y = p.y + row * p.columns;
    const float mean = add_row(p, row, y);
    const float squares = square_sum(y, p.columns, mean);
    const float rstd = 1.0F / __builtin_sqrtf(squares / static_cast<float>(p.columns) + p.eps);
    p.mean[row] = mean;
    p.rstd[row] = rstd;
    T* copy = p.y_copy == nullptr ? nullptr : p.y_copy + row * p.columns;
    for_vectors(
        p.columns, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          const Vec v = (load_some(y + i) - mean) * rstd * load_some(p.weight + i) + load_some(p.bias + i);
          store_some(y + i, v);
          if (copy != nullptr) store_some(copy + i, v);
        });
  }
}

template <class T>
void layer_norm_backward(const LayerNormParams<T>& p, int64_t first_row, int64_t last_row, float* dweight,
                         float* dbias) {
  const float inverse_columns = 1.0F / static_cast<float>(p.columns);
  clear(p.columns, dweight, dbias);
  for (int64_t row = first_row; row < last_row; ++row) {
    const float mean = p.mean[row], rstd = p.rstd[row];
    const int64_t offset = row * p.columns;
    float* dresidual = p.dresidual + offset;  // holds the normalized row until its gradient is written
    add_row(p, row, dresidual);
    Vec sum_g{}, sum_gx{};
    const auto gradient = [&](int64_t i, auto load_some) __attribute__((always_inline)) {
      Vec dy = p.dy == nullptr ? Vec{} : load_some(p.dy + offset + i);
      if (p.dy_copy != nullptr) dy += load_some(p.dy_copy + offset + i);
      return dy;
    };
    for_vectors(
        p.columns, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          const Vec dy = gradient(i, load_some), normalized = (load_some(dresidual + i) - mean) * rstd;
          store_some(dresidual + i, normalized);
          store_some(dweight + i, load_some(dweight + i) + dy * normalized);
          store_some(dbias + i, load_some(dbias + i) + dy);
          const Vec g = dy * load_some(p.weight + i);  // zero beyond the row's end
          sum_g += g;
          sum_gx += g * normalized;
        });
    const float mean_g = sum(sum_g) * inverse_columns, mean_gx = sum(sum_gx) * inverse_columns;
    for_groups(row, p.columns, p.dropout, [&](int64_t start, int64_t n, const uint16_t* bits) {
      for_vectors(
          n, [&](int64_t j, auto load_some, auto store_some) __attribute__((always_inline)) {
            const int64_t i = start + j;
            const Vec g = gradient(i, load_some) * load_some(p.weight + i);
            Vec d = (g - mean_g - load_some(dresidual + i) * mean_gx) * rstd;
            store_some(dresidual + i, d);
            if (p.dropout.threshold > 0) d *= dropout_factor(bits + j, p.dropout.threshold, p.dropout.scale);
            store_some(p.dx + offset + i, d);
          });
    });
  }
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
