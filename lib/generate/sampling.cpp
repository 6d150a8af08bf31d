#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"

namespace trainer::generate {

std::vector<std::pair<int64_t, double>> candidates(std::span<const float> logits,
                                                   std::span<const int64_t> history,
                                                   const Sampling& sampling) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (sampling.repetition_penalty != 1) {
    std::vector<int64_t> seen(history.begin(), history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int64_t id : seen) {
      if (id >= static_cast<int64_t>(scores.size())) break;
      double& score = scores[static_cast<size_t>(id)];
      score = score > 0 ? score / sampling.repetition_penalty : score * sampling.repetition_penalty;
    }
  }
  const auto best = std::max_element(scores.begin(), scores.end(), [](double a, double b) {
    return std::isnan(a) ? !std::isnan(b) : a < b;  // NaN is below all
  });
  if (best == scores.end() || !std::isfinite(*best)) {
    fail<NumericError>("the model's logits are inf or NaN; hint: are its weights? try --precision fp32");
  }
  if (sampling.temperature == 0) return {{best - scores.begin(), 1.0}};

  double threshold = -std::numeric_limits<double>::infinity();
  const auto k = static_cast<size_t>(sampling.top_k);
  if (k > 0 && k < scores.size()) {
    std::vector<double> order = scores;
    std::nth_element(order.begin(), order.begin() + sampling.top_k - 1, order.end(), std::greater<>());
    threshold = order[k - 1];
  }
  std::vector<std::pair<int64_t, double>> kept;
  const double highest = *best;
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(scores[i] >= threshold)) continue;
    const double weight = std::exp((scores[i] - highest) / sampling.temperature);
    if (weight == 0 || std::isnan(weight)) continue;
    kept.emplace_back(static_cast<int64_t>(i), weight);
    sum += weight;
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  double before = 0;
  size_t n = 0;
  while (n < kept.size() && (n == 0 || before < sampling.top_p * sum)) before += kept[n++].second;
  kept.resize(n);
  for (auto& [id, weight] : kept) weight /= before;
  return kept;
}

int64_t draw(std::span<const float> logits, std::span<const int64_t> history, const Sampling& sampling,
             std::mt19937_64& random) {
  const auto kept = candidates(logits, history, sampling);
  if (sampling.temperature == 0) return kept.front().first;
  // 53 bits: std::uniform_real_distribution differs between libraries.
  double left = static_cast<double>(random() >> 11) * 0x1p-53;
  for (const auto& [id, probability] : kept) {
    if (left < probability) return id;
    left -= probability;
  }
  return kept.back().first;  // what rounding left over
}

}  // namespace trainer::generate
