#pragma once

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/ops.h"

// Operations and their gradients against a reference in fp64.

namespace trainer::ops_check {

using at::Tensor;
using kernels::Dropout;

inline int64_t total(const std::vector<int32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

inline Tensor starts(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> result{0};
  for (const int32_t length : lengths) result.push_back(result.back() + length);
  return at::tensor(result, at::kInt);
}

inline Dropout dropout_of(int64_t rows, double p) {
  return {p, at::randint(int64_t{1} << 62, {rows}, at::kLong), 7};
}

// Outputs and the gradients of a random weighting (exact in bf16) of them, of `f` at `inputs` as they are, or
// taken to fp64.
inline std::vector<Tensor> evaluate(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
                                    const std::vector<Tensor>& inputs, bool in_double) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back((in_double ? input.to(at::kDouble) : input.clone()).detach().requires_grad_(true));
  }
  const auto outputs = f(leaves);
  torch::manual_seed(99);
  Tensor loss = at::zeros({}, at::kDouble);
  std::vector<Tensor> result;
  for (const Tensor& output : outputs) {
    loss = loss +
           (output.to(at::kDouble) * torch::randn(output.sizes()).to(at::kBFloat16).to(at::kDouble)).sum();
    result.push_back(output.detach().to(at::kDouble));
  }
  loss.backward();
  for (const Tensor& leaf : leaves) result.push_back(leaf.grad().to(at::kDouble));
  return result;
}

// Largest difference, each over its expected absolute value plus the root mean square of all.
inline double relative_error(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  if (got.numel() == 0) return 0;
  const Tensor scale = expected.abs() + expected.pow(2).mean().sqrt() + 1e-6;
  return ((got - expected).abs() / scale).max().item<double>();
}

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// `fused` at inputs against `composed` in fp64. The rounding of inputs is common to both. What remains is a
// few hundred roundings of sums in fp32, which grow as their square root: sqrt(1536) * 2^-24 = 2e-6, some
// sigmas of it; and in bf16 the rounding of results and of what is kept between (2^-9 each), a few of them.
inline void check(const Function& fused, const Function& composed, const std::vector<Tensor>& inputs,
                  bool bf16) {
  const auto got = evaluate(fused, inputs, false), expected = evaluate(composed, inputs, true);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, bf16);
    CHECK(relative_error(got[i], expected[i]) < (bf16 ? 8 * 0x1p-9 : 1e-5));
  }
}

inline Tensor random(at::IntArrayRef sizes, bool bf16) {
  return torch::randn(sizes).to(bf16 ? at::kBFloat16 : at::kFloat);
}

inline std::vector<Tensor> pair_to_vector(const std::pair<Tensor, Tensor>& pair) {
  return {pair.first, pair.second};
}

}  // namespace trainer::ops_check
