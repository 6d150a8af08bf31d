#include "kernels/ops.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>

#include "kernels/composed.h"
#include "ops_check.h"

// The fused CPU operations against their compositions of ATen operations in fp64: forward and every gradient.
// The binary runs once for every instruction set (TRAINER_CPU_ISA).

using namespace trainer;
using namespace trainer::ops_check;
using kernels::Activation;

namespace {

const std::vector<int32_t> kLengths{1, 7, 33, 300, 16, 53, 129, 2};

}  // namespace

TEST_CASE(
    "Linear layers, with and without an activation, equal the composition in fp64, forward and backward") {
  torch::manual_seed(1);
  for (const bool bf16 : {false, true}) {
    for (const auto activation :
         {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh}) {
      for (const auto& [n, in, out] :
           {std::array{37, 384, 96}, {850, 96, 130}, {1, 34, 2}, {5, 2, 6}, {13, 70, 50}}) {
        CAPTURE(static_cast<int>(activation), n, in, out);
        const auto f = [activation](auto op) {
          return [activation, op](const std::vector<Tensor>& v) {
            return std::vector{op(v[0], v[1], v[2], activation)};
          };
        };
        std::vector<Tensor> inputs{random({n, in}, bf16), random({out, in}, false) / std::sqrt(in),
                                   random({out}, false)};
        if (activation == Activation::kRelu) {
          // Small integers, whose sums are exact, and no sum is 0: at the kink rounding would decide the gradient.
          for (Tensor& input : inputs) input = at::randint(-3, 4, input.sizes(), input.options());
          inputs[2] += 0.5;
        }
        check(f(kernels::linear), f(kernels::composed::linear), inputs, bf16);
      }
    }
  }
  CHECK(
      kernels::linear(torch::randn({3, 5}, at::kBFloat16), torch::randn({7, 5}), torch::randn({7})).size(1) ==
      7);
}

TEST_CASE("Linear layers of few rows without gradients equal the composition in fp64") {
  torch::manual_seed(12);
  const at::NoGradGuard no_grad;
  for (const bool bf16 : {false, true}) {
    for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16}) {
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{96, 70}, {33, 129}, {5, 3}, {768, 1}}) {
        for (const auto activation :
             {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh}) {
          CAPTURE(bf16, n, in, out, static_cast<int>(activation));
          const Tensor x = random({n, in}, bf16), weight = random({out, in}, false) / std::sqrt(in);
          const Tensor bias = activation == Activation::kGelu ? Tensor() : random({out}, false);
          const Tensor got = kernels::linear(x, weight, bias, activation);
          CHECK(got.scalar_type() == x.scalar_type());
          const Tensor expected =
              kernels::composed::linear(x.to(at::kDouble), weight.to(at::kDouble),
                                        bias.defined() ? bias.to(at::kDouble) : bias, activation);
          CHECK(relative_error(got.to(at::kDouble), expected) < (bf16 ? 0x1p-8 : 1e-5));
        }
      }
    }
  }
}

TEST_CASE(
    "Dropout, residual and layer norm in one pass equal the composition in fp64, forward and backward") {
  torch::manual_seed(2);
  for (const bool bf16 : {false, true}) {
    for (const double p : {0.0, 0.1, 0.5}) {
      for (const auto& [n, c] : {std::array{70, 384}, {33, 100}, {1, 17}, {3, 3}}) {
        CAPTURE(p, n, c);
        const Dropout dropout = dropout_of(n, p);
        const auto f = [&dropout](auto op) {
          return [&dropout, op](const std::vector<Tensor>& v) {
            return pair_to_vector(op(v[0], v[1], v[2], v[3], 1e-5, dropout));
          };
        };
        check(f(kernels::dropout_add_layer_norm), f(kernels::composed::dropout_add_layer_norm),
              {random({n, c}, bf16), random({n, c}, false), random({c}, false), random({c}, false)}, bf16);
      }
    }
  }
}

TEST_CASE("Attention over ragged sequences equals the composition in fp64, forward and backward") {
  torch::manual_seed(3);
  for (const bool bf16 : {false, true}) {
    for (const double p : {0.0, 0.2}) {
      for (const auto& [heads, dim] : {std::array{2, 32}, {3, 16}, {1, 64}, {2, 80}, {2, 10}}) {
        CAPTURE(p, heads, dim);
        const int64_t n = total(kLengths);
        const Dropout dropout = dropout_of(n, p);
        const auto f = [&, heads = heads](auto op) {
          return [&dropout, heads, op](const std::vector<Tensor>& v) {
            return std::vector{op(v[0], starts(kLengths), kLengths, heads, dropout)};
          };
        };
        check(f(kernels::varlen_attention), f(kernels::composed::varlen_attention),
              {random({n, 3 * heads * dim}, bf16)}, bf16);
      }
    }
  }
}

TEST_CASE("Attention without dropout equals scaled_dot_product_attention of each sequence") {
  torch::manual_seed(4);
  const int64_t heads = 3, dim = 16, n = total(kLengths);
  const Tensor qkv = torch::randn({n, 3 * heads * dim});
  const Tensor y = kernels::varlen_attention(qkv, starts(kLengths), kLengths, heads, {});
  int64_t start = 0;
  for (const int64_t length : kLengths) {
    const auto parts =
        qkv.narrow(0, start, length).view({length, 3, heads, dim}).permute({1, 2, 0, 3}).unbind(0);
    const Tensor expected = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    CHECK(torch::allclose(y.narrow(0, start, length).view({length, heads, dim}).transpose(0, 1), expected,
                          1e-5, 1e-6));
    start += length;
  }
}

TEST_CASE(
    "A row's dropout mask depends on its key alone, and is the same in fp32, bf16, forward and backward") {
  torch::manual_seed(5);
  const int64_t n = 40, c = 300;
  const Dropout dropout = dropout_of(n, 0.3);
  const Tensor x = torch::ones({n, c}).requires_grad_(true);
  const Tensor y = kernels::dropout(x, dropout);
  y.sum().backward();
  CHECK(at::equal(y, x.grad()));
  CHECK(at::equal(y, kernels::composed::dropout(x, dropout)));
  CHECK(at::equal(y == 0, kernels::dropout(x.to(at::kBFloat16), dropout) == 0));
  const Dropout tail{0.3, dropout.row_keys.narrow(0, 25, 10), 7};
  CHECK(at::equal(y.narrow(0, 25, 10), kernels::dropout(x.narrow(0, 25, 10), tail)));
  CHECK_FALSE(at::equal(y, kernels::dropout(x, {0.3, dropout.row_keys, 8})));
  const double keep = 1 - std::round(0.3 * 65536) / 65536, kept = (y != 0).sum().item<double>();
  CHECK(std::abs(kept - n * c * keep) < 5 * std::sqrt(n * c * keep * (1 - keep)));

  // Attention of a sequence is the same alone and in a batch.
  const Tensor qkv = torch::randn({n, 96});
  const Tensor batch = kernels::varlen_attention(qkv, starts({25, 10, 5}), {25, 10, 5}, 2, dropout);
  CHECK(at::equal(batch.narrow(0, 25, 10),
                  kernels::varlen_attention(qkv.narrow(0, 25, 10), starts({10}), {10}, 2, tail)));
}

TEST_CASE("Results are the same bits for one and for two threads") {
  torch::manual_seed(6);
  const int64_t n = total(kLengths), c = 64;
  const Dropout dropout = dropout_of(n, 0.1);
  const std::vector<Tensor> inputs{random({n, c}, false), random({3 * c, c}, false), random({3 * c}, false),
                                   random({c}, false), random({c}, false)};
  const Function layer = [&](const std::vector<Tensor>& v) {
    const Tensor qkv = kernels::linear(v[0], v[1], v[2]);
    const Tensor attended = kernels::varlen_attention(qkv, starts(kLengths), kLengths, 2, dropout);
    return pair_to_vector(kernels::dropout_add_layer_norm(attended, v[0], v[3], v[4], 1e-12, dropout));
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = evaluate(layer, inputs, false);
  at::set_num_threads(2);
  const auto two = evaluate(layer, inputs, false);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], two[i]));
}

TEST_CASE("Empty batches give empty results and zero gradients") {
  const Dropout dropout{0.1, at::empty({0}, at::kLong), 1};
  const Tensor weight = torch::randn({12, 4}).requires_grad_(true),
               bias = torch::randn({12}).requires_grad_(true);
  const Tensor gamma = torch::ones({4}).requires_grad_(true), beta = torch::zeros({4}).requires_grad_(true);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Tensor x = torch::zeros({0, 4}, dtype).requires_grad_(true);
    const Tensor y = kernels::varlen_attention(kernels::linear(x, weight, bias, Activation::kGelu),
                                               starts({}), {}, 2, dropout);
    const auto [z, copy] = kernels::dropout_add_layer_norm(kernels::dropout(y, dropout), torch::zeros({0, 4}),
                                                           gamma, beta, 1e-12, dropout);
    REQUIRE(z.sizes() == at::IntArrayRef({0, 4}));
    REQUIRE(copy.scalar_type() == dtype);
    (z.sum() + copy.sum()).backward();
    CHECK(weight.grad().abs().sum().item<double>() == 0);
    CHECK(gamma.grad().abs().sum().item<double>() == 0);
    CHECK(x.grad().sizes() == x.sizes());
  }
}

TEST_CASE("Views that are not dense, inputs without gradients and no-grad mode work") {
  torch::manual_seed(7);
  const Tensor wide = torch::randn({10, 200}), qkv = wide.narrow(1, 30, 96);
  const Tensor expected = kernels::varlen_attention(qkv.contiguous(), starts({4, 6}), {4, 6}, 2, {});
  CHECK(at::equal(kernels::varlen_attention(qkv, starts({4, 6}), {4, 6}, 2, {}), expected));
  const Tensor weight = torch::randn({8, 10}), bias = torch::randn({8});
  const Tensor y = kernels::linear(wide.t().narrow(0, 0, 4), weight, bias);
  CHECK(torch::allclose(y, at::linear(wide.t().narrow(0, 0, 4), weight, bias), 1e-5, 1e-5));
  CHECK_FALSE(y.requires_grad());
  const Tensor trained = weight.clone().requires_grad_(true);
  kernels::linear(wide.narrow(1, 0, 10), trained, bias).sum().backward();
  CHECK(torch::allclose(trained.grad(), wide.narrow(1, 0, 10).sum(0).expand({8, 10}), 1e-5, 1e-5));
  const at::NoGradGuard no_grad;
  CHECK_FALSE(kernels::linear(wide.narrow(1, 0, 10), trained, bias).requires_grad());
}
