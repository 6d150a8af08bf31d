#pragma once

#include "kernels/cpu/simd.h"

namespace trainer::kernels::TRAINER_CPU_ISA {

// NaN stays NaN.
TRAINER_INLINE Vec relu(Vec x) {
  return x < splat(0.0F) ? splat(0.0F) : x;
}

TRAINER_INLINE Vec gelu(Vec x) {
  return x * normal(x).cumulative;
}
TRAINER_INLINE Vec gelu_gradient(Vec x) {
  const Normal probability = normal(x);
  return probability.cumulative + x * probability.density;
}

// x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016).
constexpr float kTwiceRoot = 1.5957691216F, kCubic = 0.044715F;
TRAINER_INLINE Vec gelu_tanh(Vec x) {
  return x * sigmoid(x * (splat(kTwiceRoot) + x * x * (kTwiceRoot * kCubic)));
}
TRAINER_INLINE Vec gelu_tanh_gradient(Vec x) {
  const Vec square = x * x;
  const Vec s = sigmoid(x * (splat(kTwiceRoot) + square * (kTwiceRoot * kCubic)));
  return s + x * s * (splat(1.0F) - s) * (splat(kTwiceRoot) + square * (3 * kTwiceRoot * kCubic));
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
