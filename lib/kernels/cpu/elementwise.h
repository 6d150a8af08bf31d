#pragma once

#include "kernels/cpu/activation.h"

namespace trainer::kernels::TRAINER_CPU_ISA {

template <class T>
void activation_backward(Activation activation, const T* x, const T* dy, T* dx, int64_t n) {
  const auto write = [&](auto gradient) __attribute__((always_inline)) {
    for_vectors(
        n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          store_some(dx + i, gradient(load_some(dy + i), load_some(x + i)));
        });
  };
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      write([](Vec d, Vec v) __attribute__((always_inline)) { return v <= splat(0.0F) ? splat(0.0F) : d; });
      break;
    case Activation::kGelu:
      write([](Vec d, Vec v) __attribute__((always_inline)) { return d * gelu_gradient(v); });
      break;
    case Activation::kGeluTanh:
      write([](Vec d, Vec v) __attribute__((always_inline)) { return d * gelu_tanh_gradient(v); });
      break;
  }
}

template <class T>
void swiglu_forward(const T* gate_up, T* y, int64_t n) {
  for_vectors(
      n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
        const Vec gate = load_some(gate_up + i);
        store_some(y + i, gate * sigmoid(gate) * load_some(gate_up + n + i));
      });
}

template <class T>
void swiglu_backward(const T* gate_up, const T* dy, T* dgate_up, int64_t n) {
  for_vectors(
      n, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
        const Vec gate = load_some(gate_up + i), up = load_some(gate_up + n + i), d = load_some(dy + i);
        const Vec s = sigmoid(gate), silu = gate * s;
        store_some(dgate_up + i, d * up * (s + silu * (splat(1.0F) - s)));
        store_some(dgate_up + n + i, d * silu);
      });
}

template <class T>
float cross_entropy(const CrossEntropyRow<T>& p) {
  const float wanted = p.logits[p.label];
  Vec largest = splat(-3e38F);
  for (int64_t i = 0; i < p.columns; i += kLanes) {
    const Vec v = is_below(i, p.vocab) ? load(p.logits + i) : splat(-3e38F);
    largest = v > largest ? v : largest;
  }
  const float top = max(largest);
  Vec total{};
  for (int64_t i = 0; i < p.columns; i += kLanes) {
    const Vec e = is_below(i, p.vocab) ? exp(load(p.logits + i) - top) : Vec{};
    total += e;
    store(p.logits + i, e);
  }
  const float denominator = sum(total);
  if (p.dlogits != nullptr) {
    const float inverse = 1.0F / denominator;
    p.logits[p.label] -= denominator;  // after division: minus one
    for (int64_t i = 0; i < p.columns; i += kLanes) store(p.dlogits + i, load(p.logits + i) * inverse);
  }
  return __builtin_logf(denominator) + top - wanted;
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
