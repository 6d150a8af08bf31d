#pragma once

#include "kernels/cpu/layer_norm.h"

namespace trainer::kernels::TRAINER_CPU_ISA {

// h of a row; returns the sum of its elements.
template <class T>
TRAINER_INLINE float add_row(const PreNormParams<T>& p, int64_t row) {
  Vec total{};
  float* h = p.h + row * p.columns;
  if (p.x == nullptr) {
    for_vectors(
        p.columns, [&](int64_t i, auto load_some, auto)
                       __attribute__((always_inline)) { total += load_some(h + i); });
    return sum(total);
  }
  for_groups(row, p.columns, p.dropout, [&](int64_t start, int64_t n, const uint16_t* bits) {
    const int64_t offset = row * p.columns + start;
    for_vectors(
        n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          Vec v = load_some(p.x + offset + i);
          if (p.dropout.threshold > 0) v *= dropout_factor(bits + i, p.dropout.threshold, p.dropout.scale);
          v += load_some(p.residual + offset + i);
          store_some(h + start + i, v);
          total += v;
        });
  });
  return sum(total);
}

template <class T>
void pre_norm_forward(const PreNormParams<T>& p, int64_t first_row, int64_t last_row) {
  const float inverse_columns = 1.0F / static_cast<float>(p.columns);
  for (int64_t row = first_row; row < last_row; ++row) {
    const float total = add_row(p, row), mean = p.rms ? 0.0F : total * inverse_columns;
    const float* h = p.h + row * p.columns;
    const float squares = square_sum(h, p.columns, mean);
    const float rstd = 1.0F / __builtin_sqrtf(squares * inverse_columns + p.eps);
    p.mean[row] = mean;
    p.rstd[row] = rstd;
    for_vectors(
        p.columns, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          Vec v = (load_some(h + i) - mean) * rstd * load_some(p.weight + i);
          if (p.bias != nullptr) v += load_some(p.bias + i);
          store_some(p.y + row * p.columns + i, v);
        });
  }
}

template <class T>
void pre_norm_backward(const PreNormParams<T>& p, int64_t first_row, int64_t last_row, float* dweight,
                       float* dbias) {
  const float inverse_columns = 1.0F / static_cast<float>(p.columns);
  clear(p.columns, dweight, dbias);
  for (int64_t row = first_row; row < last_row; ++row) {
    const float mean = p.mean[row], rstd = p.rstd[row];
    const int64_t offset = row * p.columns;
    const auto normalized = [&](int64_t i, auto load_some) __attribute__((always_inline)) {
      return (load_some(p.h + offset + i) - mean) * rstd;
    };
    Vec sum_g{}, sum_gx{};
    if (p.dy != nullptr) {
      for_vectors(
          p.columns, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
            const Vec dy = load_some(p.dy + offset + i), x = normalized(i, load_some);
            store_some(dweight + i, load_some(dweight + i) + dy * x);
            store_some(dbias + i, load_some(dbias + i) + dy);
            const Vec g = dy * load_some(p.weight + i);  // zero beyond the row's end
            sum_g += g;
            sum_gx += g * x;
          });
    }
    const float mean_g = p.rms ? 0.0F : sum(sum_g) * inverse_columns, mean_gx = sum(sum_gx) * inverse_columns;
    const DropoutParams off{};
    for_groups(row, p.columns, p.dx == nullptr ? off : p.dropout,
               [&](int64_t start, int64_t n, const uint16_t* bits) {
                 for_vectors(
                     n, [&](int64_t j, auto load_some, auto store_some) __attribute__((always_inline)) {
                       const int64_t i = start + j;
                       Vec d{};
                       if (p.dy != nullptr) {
                         const Vec g = load_some(p.dy + offset + i) * load_some(p.weight + i);
                         d = (g - mean_g - normalized(i, load_some) * mean_gx) * rstd;
                       }
                       if (p.dh != nullptr) d += load_some(p.dh + offset + i);
                       store_some(p.dresidual + offset + i, d);
                       if (p.dx == nullptr) return;
                       if (p.dropout.threshold > 0) {
                         d *= dropout_factor(bits + j, p.dropout.threshold, p.dropout.scale);
                       }
                       store_some(p.dx + offset + i, d);
                     });
               });
  }
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
