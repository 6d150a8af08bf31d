#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "core/math.h"
#include "kernels/cpu/kernels.h"
#include "kernels/ops.h"
#include "kernels/philox.h"

// What the CPU operations share: threads, scratch memory, and tensors as the kernels' pointers.

namespace trainer::kernels {

// Calls body(i) for i in [0, n) on ATen's threads (OpenMP's); each takes the next one when it is free. What
// body(i) computes must not depend on the thread. An exception of body is thrown again, others' items are
// done first.
void parallel_items(int64_t n, const std::function<void(int64_t)>& body);

constexpr int64_t kRowsPerItem = 32;  // rows of an item, which have a sum of weight gradients of their own

// Calls body(item, first_row, last_row) for all rows, an item after the other as above.
template <class Body>
void for_items(int64_t rows, const Body& body) {
  parallel_items(ceil_div(rows, kRowsPerItem), [&](int64_t item) {
    body(item, item * kRowsPerItem, std::min(rows, (item + 1) * kRowsPerItem));
  });
}

// Memory of this thread for `n` floats, kept for the next call: allocating megabytes anew costs page faults.
// Valid until the next call with the same slot.
inline float* scratch(int slot, int64_t n) {
  struct Buffer {
    std::unique_ptr<float, decltype(&std::free)> data{nullptr, &std::free};
    int64_t size = 0;
  };
  thread_local Buffer buffers[4];
  Buffer& buffer = buffers[slot];
  if (buffer.size < n) {
    buffer.size = n + n / 4;
    const auto bytes = (static_cast<size_t>(buffer.size) * sizeof(float) + 63) / 64 * 64;
    buffer.data.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    TORCH_CHECK_WITH(OutOfMemoryError, buffer.data != nullptr, "cannot allocate ", bytes, " bytes");
  }
  return buffer.data.get();
}
enum ScratchSlot { kPanels, kMorePanels, kStrips, kHead };

// With dense row_keys.
inline DropoutParams dropout_params(const Dropout& dropout) {
  if (dropout.p == 0) return {};
  const uint32_t threshold = dropout_threshold(dropout.p);
  return {threshold, dropout_scale(threshold), dropout.site, dropout.row_keys.const_data_ptr<int64_t>()};
}

// Dropout in an autograd context: the keys are saved as the last tensor.
inline Dropout dense(const Dropout& dropout) {
  return {dropout.p, dropout.p > 0 ? dropout.row_keys.contiguous() : at::Tensor(), dropout.site};
}
inline void save_dropout(torch::autograd::AutogradContext& context, const Dropout& dropout) {
  context.saved_data["p"] = dropout.p;
  context.saved_data["site"] = int64_t{dropout.site};
}
inline Dropout saved_dropout(torch::autograd::AutogradContext& context, const at::Tensor& row_keys) {
  return {context.saved_data["p"].toDouble(), row_keys,
          static_cast<uint32_t>(context.saved_data["site"].toInt())};
}

// An argument of an autograd function, which takes no undefined tensors.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// The kernels' view of a tensor's data: fp32 as float, bf16 as Bf16.
template <class T>
const T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* mutable_data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

// Calls f(T{}) with the kernel type of a dtype.
template <class F>
auto with_type(at::ScalarType dtype, const F& f) {
  return dtype == at::kFloat ? f(float{}) : f(Bf16{});
}
template <class F>
auto with_type(const at::Tensor& tensor, const F& f) {
  return with_type(tensor.scalar_type(), f);
}

}  // namespace trainer::kernels
