// Time of one MiniLM encoder layer with dropout and of GPT-2 models without, forward and backward, by the
// kernels and by ATen compositions, and of every operation of the kernels:
//   kernels_bench [THREADS [ROUNDS]]
// With one thread it is CPU time, which other processes disturb less.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <numeric>

#include "kernels/composed.h"
#include "kernels/ops.h"

using namespace trainer;
using at::Tensor;

namespace {

clockid_t clock_id = CLOCK_MONOTONIC;
int rounds = 20;

double now_ms() {
  timespec t{};
  clock_gettime(clock_id, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// Least times of `rounds` calls of forward, and of backward through what it returned.
void time(const char* name, double gflop, const std::function<std::vector<Tensor>()>& forward) {
  std::vector<double> forwards, backwards;
  for (int i = 0; i < rounds + 2; ++i) {
    const double begin = now_ms();
    const auto outputs = forward();
    const double middle = now_ms();
    std::vector<Tensor> gradients;
    for (const Tensor& output : outputs) gradients.push_back(torch::ones_like(output));
    const double start = now_ms();
    torch::autograd::backward(outputs, gradients);
    if (i < 2) continue;
    forwards.push_back(middle - begin);
    backwards.push_back(now_ms() - start);
  }
  const double f = *std::min_element(forwards.begin(), forwards.end());
  const double b = *std::min_element(backwards.begin(), backwards.end());
  std::printf("%-34s forward %7.2f ms, backward %7.2f ms", name, f, b);
  if (gflop > 0) std::printf("  (%.0f and %.0f GFLOP/s)", gflop / f * 1e3, 2 * gflop / b * 1e3);
  std::printf("\n");
}

Tensor leaf(at::IntArrayRef sizes) {
  return (torch::randn(sizes) * 0.05).requires_grad_(true);
}

// `layers` GPT-2 blocks and the loss, of batch x length tokens, vocabulary 65.
void time_gpt(int64_t layers, int64_t c, int64_t heads, int64_t length, int64_t batch, at::ScalarType dtype) {
  using kernels::Activation, kernels::Norm;
  const int64_t n = batch * length, vocab = 65;
  const std::vector<int32_t> seqlens(static_cast<size_t>(batch), static_cast<int32_t>(length));
  const Tensor cu_seqlens = at::arange(0, n + 1, length, at::kInt),
               labels = at::randint(vocab, {n}, at::kLong);
  const Tensor w_qkv = leaf({3 * c, c}), b_qkv = leaf({3 * c}), w_out = leaf({c, c}), b_out = leaf({c});
  const Tensor w_up = leaf({4 * c, c}), b_up = leaf({4 * c}), w_down = leaf({c, 4 * c}), b_down = leaf({c});
  const Tensor gamma = leaf({c}), beta = leaf({c}), embedded = leaf({n, c}), w_head = leaf({vocab, c});
  const Norm norm{gamma, beta};
  const auto input = [&](int64_t columns) {
    return leaf({n, columns}).detach().to(dtype).requires_grad_(true);
  };
  const Tensor x = input(c), wide = input(4 * c), qkv = input(3 * c);
  const auto model = [&](auto linear, auto attention, auto add_norm, auto loss) {
    auto [h, y] = add_norm(Tensor(), embedded, norm, dtype, kernels::Dropout{});
    for (int64_t i = 0; i < layers; ++i) {
      const Tensor attended = attention(linear(y, w_qkv, b_qkv, Activation::kNone), cu_seqlens, seqlens,
                                        heads, heads, kernels::Rope{}, kernels::Dropout{});
      std::tie(h, y) =
          add_norm(linear(attended, w_out, b_out, Activation::kNone), h, norm, dtype, kernels::Dropout{});
      const Tensor up = linear(y, w_up, b_up, Activation::kGeluTanh);
      std::tie(h, y) =
          add_norm(linear(up, w_down, b_down, Activation::kNone), h, norm, dtype, kernels::Dropout{});
    }
    return std::vector<Tensor>{loss(y, w_head, labels, vocab)};
  };
  const double gflop = 2e-9 * static_cast<double>(n * c),
               total = gflop * static_cast<double>(12 * c * layers + vocab);
  std::printf("GPT-2, %ld layers, %ld wide, context %ld, %s, %ld tokens\n", static_cast<long>(layers),
              static_cast<long>(c), static_cast<long>(length), at::toString(dtype), static_cast<long>(n));
  time("model, kernels", total, [&] {
    return model(kernels::linear, kernels::causal_attention, kernels::dropout_add_norm,
                 kernels::linear_cross_entropy);
  });
  const auto d = [](int64_t i) { return static_cast<double>(i); };
  time("  linear C -> 3C", gflop * d(3 * c), [&] { return std::vector{kernels::linear(x, w_qkv, b_qkv)}; });
  time("  linear C -> C", gflop * d(c), [&] { return std::vector{kernels::linear(x, w_out, b_out)}; });
  time("  linear C -> 4C, GELU", gflop * d(4 * c),
       [&] { return std::vector{kernels::linear(x, w_up, b_up, Activation::kGeluTanh)}; });
  time("  linear 4C -> C", gflop * d(4 * c),
       [&] { return std::vector{kernels::linear(wide, w_down, b_down)}; });
  time("  attention", gflop * d(length), [&] {
    return std::vector{kernels::causal_attention(qkv, cu_seqlens, seqlens, heads, heads, {}, {})};
  });
  time("  residual, norm", 0, [&] {
    const auto [h, y] = kernels::dropout_add_norm(x, embedded, norm, dtype, {});
    return std::vector{h, y};
  });
  time("  head and loss", gflop * d(vocab),
       [&] { return std::vector{kernels::linear_cross_entropy(x, w_head, labels, vocab)}; });
  const auto whole_loss = [](const Tensor& y, const Tensor& w, const Tensor& wanted, int64_t) {
    return at::cross_entropy_loss(at::linear(y, w.to(y.scalar_type())).to(at::kFloat), wanted, {},
                                  at::Reduction::Sum);
  };
  time("model, ATen", total, [&] {
    return model(kernels::composed::linear, kernels::composed::causal_attention,
                 kernels::composed::dropout_add_norm, whole_loss);
  });
}

void time_encoder_layer(int threads) {
  const int64_t c = 384, inner = 1536, heads = 12;
  const std::vector<int32_t> seqlens{31, 38, 42, 45, 47, 49, 51, 52, 53, 55, 57, 59, 62, 66, 70, 75};
  const int64_t n = std::accumulate(seqlens.begin(), seqlens.end(), int64_t{0});
  std::vector<int32_t> starts{0};
  for (const int32_t length : seqlens) starts.push_back(starts.back() + length);
  const Tensor cu_seqlens = at::tensor(starts, at::kInt);
  const kernels::Dropout dropout{0.1, at::randint(int64_t{1} << 62, {n}, at::kLong), 1};
  const Tensor w_qkv = leaf({3 * c, c}), b_qkv = leaf({3 * c}), w_out = leaf({c, c}), b_out = leaf({c});
  const Tensor w_up = leaf({inner, c}), b_up = leaf({inner}), w_down = leaf({c, inner}), b_down = leaf({c});
  const Tensor gamma = leaf({c}), beta = leaf({c});
  const double gflop = 2e-9 * static_cast<double>(n * c);

  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    std::printf("%s, %ld tokens, %d threads\n", at::toString(dtype), static_cast<long>(n), threads);
    const auto input = [&](int64_t columns) {
      return leaf({n, columns}).detach().to(dtype).requires_grad_(true);
    };
    const Tensor x = input(c), wide = input(inner), qkv_input = input(3 * c), residual = leaf({n, c});
    const auto layer = [&](auto linear, auto attention, auto norm) {
      const Tensor attended =
          attention(linear(x, w_qkv, b_qkv, kernels::Activation::kNone), cu_seqlens, seqlens, heads, dropout);
      const auto [y, y_copy] = norm(linear(attended, w_out, b_out, kernels::Activation::kNone), residual,
                                    gamma, beta, 1e-12, dropout);
      const Tensor up = linear(y_copy, w_up, b_up, kernels::Activation::kGelu);
      const auto [z, z_copy] =
          norm(linear(up, w_down, b_down, kernels::Activation::kNone), y, gamma, beta, 1e-12, dropout);
      return std::vector{z, z_copy};
    };
    time("layer, kernels", gflop * 12 * 384,
         [&] { return layer(kernels::linear, kernels::varlen_attention, kernels::dropout_add_layer_norm); });
    time("  linear C -> 3C", gflop * 3 * c, [&] { return std::vector{kernels::linear(x, w_qkv, b_qkv)}; });
    time("  linear C -> C", gflop * c, [&] { return std::vector{kernels::linear(x, w_out, b_out)}; });
    time("  linear C -> 4C, GELU", gflop * inner,
         [&] { return std::vector{kernels::linear(x, w_up, b_up, kernels::Activation::kGelu)}; });
    time("  linear 4C -> C", gflop * inner,
         [&] { return std::vector{kernels::linear(wide, w_down, b_down)}; });
    time("  attention", 0, [&] {
      return std::vector{kernels::varlen_attention(qkv_input, cu_seqlens, seqlens, heads, dropout)};
    });
    time("  dropout, residual, layer norm", 0, [&] {
      return std::vector{kernels::dropout_add_layer_norm(x, residual, gamma, beta, 1e-12, dropout).second};
    });
    // ATen's own dropout instead of the composition's scalar Philox.
    const auto aten_norm = [&](const Tensor& a, const Tensor& r, const Tensor& g, const Tensor& b, double eps,
                               const kernels::Dropout&) {
      return kernels::composed::dropout_add_layer_norm(at::dropout(a, 0.1, true), r, g, b, eps, {});
    };
    const auto aten_attention = [&](const Tensor& qkv, const Tensor&, const std::vector<int32_t>& lengths,
                                    int64_t h, const kernels::Dropout&) {
      std::vector<Tensor> outputs;
      int64_t start = 0;
      for (const int64_t length : lengths) {
        const auto parts =
            qkv.narrow(0, start, length).view({length, 3, h, c / h}).permute({1, 2, 0, 3}).unbind(0);
        outputs.push_back(at::scaled_dot_product_attention(parts[0].unsqueeze(0), parts[1].unsqueeze(0),
                                                           parts[2].unsqueeze(0), {}, 0.1)[0]
                              .transpose(0, 1)
                              .reshape({length, c}));
        start += length;
      }
      return at::cat(outputs);
    };
    time("layer, ATen", gflop * 12 * 384,
         [&] { return layer(kernels::composed::linear, aten_attention, aten_norm); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (argc > 2) rounds = std::atoi(argv[2]);
  at::set_num_threads(threads);
  if (threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;

  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    time_gpt(4, 128, 4, 64, 12, dtype);
    time_gpt(6, 384, 6, 256, 12, dtype);
  }
  time_encoder_layer(threads);
}
