#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "kernels/composed.h"
#include "ops_check.h"

// GPT's operations, forward and every gradient: against plain ATen in fp64, as a textbook would write them.

using namespace trainer;
using namespace trainer::ops_check;
using kernels::Activation, kernels::Norm, kernels::Rope;

namespace {

// The rotation by complex numbers: x[i] + j x[i + D/2] times e^(j angle).
Tensor rotate_by_complex(const Tensor& x, const Tensor& angles) {  // [N, heads, D], [N, D / 2]
  const auto halves = x.chunk(2, 2);
  const Tensor turned =
      at::complex(halves[0], halves[1]) * at::polar(at::ones_like(angles), angles).unsqueeze(1);
  return at::cat({at::real(turned), at::imag(turned)}, 2);
}

struct Heads {
  int64_t queries, keys, dim;
};

// Causal attention by masked softmax of one whole score matrix: -inf outside of the sequence and ahead.
Tensor textbook_attention(const Tensor& qkv, const std::vector<int32_t>& lengths, const Heads& h,
                          const Tensor& angles, const Dropout& dropout) {
  const int64_t n = qkv.size(0);
  const auto parts =
      qkv.view({n, h.queries + 2 * h.keys, h.dim}).split_with_sizes({h.queries, h.keys, h.keys}, 1);
  Tensor q = parts[0], k = parts[1], v = parts[2];
  if (angles.defined()) q = rotate_by_complex(q, angles), k = rotate_by_complex(k, angles);
  k = k.repeat_interleave(h.queries / h.keys, 1), v = v.repeat_interleave(h.queries / h.keys, 1);
  std::vector<Tensor> blocks;
  for (const int32_t length : lengths) blocks.push_back(at::ones({length, length}, at::kBool).tril());
  const Tensor seen = blocks.empty() ? at::zeros({0, 0}, at::kBool) : at::block_diag(blocks);
  Tensor weights = (at::einsum("ihd,jhd->hij", {q, k}) / std::sqrt(static_cast<double>(h.dim)))
                       .masked_fill(~seen, -INFINITY)
                       .softmax(2);
  if (dropout.p > 0) {
    std::vector<Tensor> factors;
    for (int64_t head = 0; head < h.queries; ++head) {
      Tensor factor = at::zeros({n, n});
      int64_t start = 0;
      for (const int32_t length : lengths) {
        factor.narrow(0, start, length)
            .narrow(1, start, length)
            .copy_(kernels::composed::dropout_factors(dropout.row_keys.narrow(0, start, length), dropout.site,
                                                      static_cast<uint32_t>(head), length, dropout.p));
        start += length;
      }
      factors.push_back(factor);
    }
    weights = weights * at::stack(factors);
  }
  return at::einsum("hij,jhd->ihd", {weights, v}).reshape({n, h.queries * h.dim});
}

Tensor positions_of(const std::vector<int32_t>& lengths) {
  std::vector<Tensor> parts{at::empty({0}, at::kLong)};
  for (const int32_t length : lengths) parts.push_back(at::arange(length, at::kLong));
  return at::cat(parts);
}

Tensor angles_of(const Tensor& positions, int64_t dim) {
  const Tensor frequencies = at::pow(10000.0, at::arange(0, dim, 2, at::kDouble) / -static_cast<double>(dim));
  return at::outer(positions.to(at::kDouble), frequencies);
}

Rope rope_of(const Tensor& positions, int64_t dim) {
  const Tensor angles = angles_of(at::arange(256), dim);
  return {at::cat({angles.cos(), angles.sin()}, 1).to(at::kFloat), positions};
}

// Both forms against the textbook's; `rotary`: or without positions.
void check_attention(const Heads& h, const std::vector<int32_t>& lengths, double p, bool rotary, bool bf16) {
  CAPTURE(h.queries, h.keys, h.dim, lengths, rotary, p);
  const int64_t n = total(lengths);
  const Tensor positions = positions_of(lengths);
  const Rope rope = rotary ? rope_of(positions, h.dim) : Rope{};
  const Tensor angles = rotary ? angles_of(positions, h.dim) : Tensor();
  const Dropout dropout = dropout_of(n, p);
  const auto with = [&](auto op) {
    return [&, op](const std::vector<Tensor>& v) {
      return std::vector{op(v[0], starts(lengths), lengths, h.queries, h.keys, rope, dropout)};
    };
  };
  const Function textbook = [&](const std::vector<Tensor>& v) {
    return std::vector{textbook_attention(v[0], lengths, h, angles, dropout)};
  };
  const std::vector<Tensor> inputs{random({n, (h.queries + 2 * h.keys) * h.dim}, bf16)};
  check(with(kernels::causal_attention), textbook, inputs, bf16);
  if (!bf16) check(with(kernels::composed::causal_attention), textbook, inputs, bf16);
}

}  // namespace

TEST_CASE("Causal attention with grouped queries, rotary embedding and dropout equals the textbook's") {
  torch::manual_seed(1);
  for (const Heads& h : {Heads{2, 2, 32}, {4, 1, 16}, {4, 2, 64}, {2, 1, 128}, {3, 3, 34}, {2, 2, 33}}) {
    for (const bool bf16 : {false, true}) {
      // The reference's dropout is slow: two shapes of heads have it.
      for (const double p : h.dim == 16 || h.dim == 33 ? std::vector{0.0, 0.2} : std::vector{0.0}) {
        check_attention(h, {1, 2, 130, 17, 65}, p, h.dim % 2 == 0 && h.keys > 1, bf16);
      }
    }
  }
}

TEST_CASE("Causal attention of sequences of one length, of one token and of none") {
  torch::manual_seed(2);
  for (const auto& lengths : {std::vector<int32_t>{40, 40, 40}, {1, 1}, {1}, {}, {0, 3, 0}}) {
    check_attention({4, 2, 16}, lengths, 0.1, true, false);
  }
}

TEST_CASE(
    "Pre-norm with residual and dropout equals its parts in fp64: LayerNorm with and without bias, RMSNorm") {
  torch::manual_seed(3);
  for (const bool bf16 : {false, true}) {
    for (const double p : {0.0, 0.3}) {
      for (const auto& [n, c] : {std::array{70, 128}, {33, 100}, {1, 17}, {3, 5}, {0, 8}}) {
        for (const auto& [rms, has_bias] : {std::pair{false, true}, {false, false}, {true, false}}) {
          CAPTURE(p, n, c, rms, has_bias);
          const Dropout dropout = dropout_of(n, p);
          const auto dtype = bf16 ? at::kBFloat16 : at::kFloat;
          const auto with = [&, rms = rms, has_bias = has_bias](auto op, at::ScalarType to) {
            return [&, op, to, rms, has_bias](const std::vector<Tensor>& v) {
              const Norm norm{v[2], has_bias ? v[3] : Tensor(), 1e-3, rms};
              return pair_to_vector(op(v[0], v[1], norm, to, dropout));
            };
          };
          const Function parts = [&, rms = rms, has_bias = has_bias](const std::vector<Tensor>& v) {
            const Tensor h = v[1] + kernels::composed::dropout(v[0], dropout);
            const Tensor centred = rms ? h : h - h.mean(1, true);
            const Tensor y = centred / (centred.square().mean(1, true) + 1e-3).sqrt() * v[2];
            return std::vector{h, has_bias ? y + v[3] : y};
          };
          std::vector<Tensor> inputs{random({n, c}, bf16), random({n, c}, false), random({c}, false)};
          if (has_bias) inputs.push_back(random({c}, false));
          check(with(kernels::dropout_add_norm, dtype), parts, inputs, bf16);
          if (!bf16) check(with(kernels::composed::dropout_add_norm, dtype), parts, inputs, bf16);
        }
      }
    }
  }
}

TEST_CASE("Pre-norm without a layer before it norms the residual alone") {
  torch::manual_seed(4);
  for (const bool bf16 : {false, true}) {
    for (const bool rms : {false, true}) {
      const auto with = [&](at::ScalarType to) {
        return [&, to](const std::vector<Tensor>& v) {
          return pair_to_vector(kernels::dropout_add_norm({}, v[0], {v[1], {}, 1e-5, rms}, to, {}));
        };
      };
      const Function parts = [&](const std::vector<Tensor>& v) {
        const Tensor centred = rms ? v[0] : v[0] - v[0].mean(1, true);
        return std::vector{v[0] + 0, centred / (centred.square().mean(1, true) + 1e-5).sqrt() * v[1]};
      };
      check(with(bf16 ? at::kBFloat16 : at::kFloat), parts, {random({37, 50}, false), random({50}, false)},
            bf16);
    }
  }
}

TEST_CASE("SwiGLU equals silu(gate) * up, forward and backward") {
  torch::manual_seed(5);
  for (const bool bf16 : {false, true}) {
    for (const auto& [n, i] : {std::array{70, 96}, {5, 33}, {1, 1}, {0, 4}}) {
      CAPTURE(n, i);
      const Function parts = [](const std::vector<Tensor>& v) {
        const auto halves = v[0].chunk(2, 1);
        return std::vector{halves[0] / (1 + (-halves[0]).exp()) * halves[1]};
      };
      const auto with = [](auto op) {
        return [op](const std::vector<Tensor>& v) { return std::vector{op(v[0])}; };
      };
      check(with(kernels::swiglu), parts, {random({n, 2 * i}, bf16)}, bf16);
      if (!bf16) check(with(kernels::composed::swiglu), parts, {random({n, 2 * i}, bf16)}, bf16);
    }
  }
}

TEST_CASE("Linear layers without bias equal the product in fp64") {
  torch::manual_seed(6);
  for (const bool bf16 : {false, true}) {
    for (const auto activation : {Activation::kNone, Activation::kGeluTanh}) {
      const Function product = [&](const std::vector<Tensor>& v) {
        const Tensor y = at::mm(v[0], v[1].t());
        if (activation == Activation::kNone) return std::vector{y};
        return std::vector{0.5 * y * (1 + at::tanh(std::sqrt(2 / M_PI) * (y + 0.044715 * y.pow(3))))};
      };
      const Function layer = [&](const std::vector<Tensor>& v) {
        return std::vector{kernels::linear(v[0], v[1], {}, activation)};
      };
      check(layer, product, {random({37, 64}, bf16), random({50, 64}, false) / 8}, bf16);
    }
  }
}

TEST_CASE("Cross-entropy of a linear layer equals ATen's on whole logits, in loss and gradients") {
  torch::manual_seed(7);
  struct Case {
    int64_t n, c, rows, vocab;
  };
  for (const bool bf16 : {false, true}) {
    for (const Case& s : {Case{37, 32, 65, 65},
                          {300, 16, 128, 65},
                          {5, 8, 1, 1},
                          {1, 33, 7, 6},
                          {258, 8, 16400, 16390},
                          {0, 8, 12, 12}}) {
      for (const double ignored : s.n == 258 ? std::vector{0.0} : std::vector{0.0, 0.3, 1.0}) {
        CAPTURE(s.n, s.c, s.rows, s.vocab, ignored);
        Tensor labels = at::randint(s.vocab, {s.n}, at::kLong);
        labels.masked_fill_(at::rand({s.n}) < ignored, kernels::kIgnoredLabel);
        const Function whole = [&](const std::vector<Tensor>& v) {
          const Tensor logits = at::mm(v[0], v[1].t()).narrow(1, 0, s.vocab);
          return std::vector{at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum)};
        };
        const auto with = [&](auto op) {
          return
              [&, op](const std::vector<Tensor>& v) { return std::vector{op(v[0], v[1], labels, s.vocab)}; };
        };
        const std::vector<Tensor> inputs{random({s.n, s.c}, bf16), random({s.rows, s.c}, false) / 4};
        check(with(kernels::linear_cross_entropy), whole, inputs, bf16);
        if (!bf16) check(with(kernels::composed::linear_cross_entropy), whole, inputs, bf16);
      }
    }
  }
}

TEST_CASE("Cross-entropy of a linear layer without gradients, of x alone, and by a second backward") {
  torch::manual_seed(8);
  const Tensor labels = at::randint(65, {50}, at::kLong), w = torch::randn({65, 16});
  const Tensor x = torch::randn({50, 16}).requires_grad_(true);
  const Tensor expected = at::cross_entropy_loss(at::mm(x, w.t()), labels, {}, at::Reduction::Sum);
  {
    const at::NoGradGuard no_grad;
    const Tensor loss = kernels::linear_cross_entropy(x, w, labels, 65);
    CHECK_FALSE(loss.requires_grad());
    CHECK(torch::allclose(loss, expected, 1e-5));
  }
  const Tensor loss = kernels::linear_cross_entropy(x, w, labels, 65);
  const auto want = torch::autograd::grad({expected / 50}, {x})[0];
  CHECK(torch::allclose(torch::autograd::grad({loss / 50}, {x}, {}, true)[0], want, 1e-5, 1e-7));
  CHECK_THROWS_WITH(torch::autograd::grad({loss}, {x}), Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("A label beyond the vocabulary is an error that says where") {
  const Tensor x = torch::zeros({3, 4}), w = torch::zeros({8, 4});
  const auto loss = [&](int64_t label) {
    return kernels::linear_cross_entropy(x, w, at::tensor({int64_t{0}, label, int64_t{6}}), 7);
  };
  CHECK_THROWS_AS(loss(7), DataError);
  CHECK_THROWS_WITH(loss(7), Catch::Contains("label of row 1: got 7; expected 0 to 6, or -100 for none"));
  CHECK_THROWS_WITH(loss(-1), Catch::Contains("got -1"));
}

TEST_CASE("Results of GPT's operations are the same bits for one and for two threads") {
  torch::manual_seed(9);
  const std::vector<int32_t> lengths{130, 17, 64};
  const int64_t n = total(lengths), c = 64, vocab = 1000;
  const Dropout dropout = dropout_of(n, 0.1);
  const Rope rope = rope_of(positions_of(lengths), 16);
  const Tensor labels = at::randint(vocab, {n}, at::kLong);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Function block = [&](const std::vector<Tensor>& v) {
      const auto [h, y] = kernels::dropout_add_norm({}, v[0], {v[1], {}, 1e-5, true}, dtype, dropout);
      const Tensor attended = kernels::causal_attention(kernels::linear(y, v[2], {}), starts(lengths),
                                                        lengths, 4, 2, rope, dropout);
      const auto [h2, y2] = kernels::dropout_add_norm(attended, h, {v[1], {}, 1e-5, true}, dtype, dropout);
      const Tensor mlp = kernels::swiglu(kernels::linear(y2, v[2], {}, Activation::kGeluTanh));
      return std::vector{h2, kernels::linear_cross_entropy(mlp, v[3], labels, vocab)};
    };
    const std::vector<Tensor> inputs{random({n, c}, false), random({c}, false), random({2 * c, c}, false),
                                     random({vocab, c}, false)};
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const auto one = evaluate(block, inputs, false);
    at::set_num_threads(2);
    const auto two = evaluate(block, inputs, false);
    at::set_num_threads(threads);
    for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], two[i]));
  }
}

namespace {

// The CPU allocator, counting: what is allocated now and the most that was.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}
  c10::DataPtr allocate(size_t size) override {
    auto* block = new Block{this, base_->allocate(size), static_cast<int64_t>(size)};
    now += block->size;
    peak = std::max(peak, now);
    return {block->data.get(), block, &release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size) const override { base_->copy_data(to, from, size); }

  int64_t now = 0, peak = 0;

 private:
  struct Block {
    CountingAllocator* owner;
    c10::DataPtr data;
    int64_t size;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->now -= block->size;
    delete block;
  }
  c10::Allocator* base_;
};

}  // namespace

TEST_CASE("Cross-entropy at a vocabulary of 128k allocates what its comment says: not the whole logits") {
  const int64_t n = 700, c = 8, vocab = 128000;
  const auto x = torch::randn({n, c}).requires_grad_(true), w = torch::randn({vocab, c}).requires_grad_(true);
  const Tensor labels = at::randint(vocab, {n}, at::kLong);
  c10::Allocator* const before = c10::GetCPUAllocator();
  static CountingAllocator counting(before);  // tensors may outlive this test
  c10::SetCPUAllocator(&counting, 1);
  const Tensor loss = kernels::linear_cross_entropy(x, w, labels, vocab);
  c10::SetCPUAllocator(before, 1);
  const int64_t rows = kernels::cross_entropy_rows(vocab, false), gradients = (n + vocab) * c;
  REQUIRE(rows < n / 2);
  CHECK(counting.peak / 4 > rows * vocab);  // it was counted
  CHECK(counting.peak / 4 < 2 * rows * vocab + gradients + 10 * n);
  CHECK(counting.now / 4 < gradients + 10 * n);  // what backward needs
}
