#include "metrics/language.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using trainer::metrics::LanguageMetrics;
using trainer::spec::Metric;

TEST_CASE("a language model's metrics are of all targets, whatever the batches, and per byte of their text") {
  // Tokens of 1, 2 and 4 bytes; a uniform distribution over 3 tokens costs ln 3 each.
  const at::Tensor token_bytes = torch::tensor({1, 2, 4}, at::kInt);
  LanguageMetrics metrics({Metric::kLoss, Metric::kPerplexity, Metric::kBitsPerByte}, token_bytes);
  const auto add = [&](std::vector<int64_t> labels, double targets) {
    metrics.add({{}, torch::tensor(labels, at::kLong), {}, torch::scalar_tensor(targets * std::log(3.0))});
  };
  add({0, 1, -100, 2}, 3);
  add({-100}, 0);
  add({2, 2}, 2);
  metrics.add({{}, torch::zeros({0}, at::kLong), {}, torch::zeros({})});
  const auto values = metrics.compute(metrics.rows()).values;
  CHECK(values.at(Metric::kLoss) == Approx(std::log(3.0)));
  CHECK(values.at(Metric::kPerplexity) == Approx(3.0));
  CHECK(values.at(Metric::kBitsPerByte) == Approx(5 * std::log2(3.0) / 15));
}

TEST_CASE("a language model's metrics are NaN without targets") {
  LanguageMetrics metrics({Metric::kLoss, Metric::kPerplexity}, {});
  metrics.add({{}, torch::full({2}, -100, at::kLong), {}, torch::zeros({})});
  for (const auto& [metric, value] : metrics.compute(metrics.rows()).values) CHECK(std::isnan(value));
}
