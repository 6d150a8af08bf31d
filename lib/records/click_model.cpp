#include "records/click_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace trainer::records {
namespace {

constexpr uint64_t kPairDims = 2;                          // of v
constexpr uint64_t kCalibration = 0xca11;                  // a stream of its own
constexpr double kCountMean = 1.5, kCountDeviation = 1.2;  // of the normal whose exponential counts are
constexpr double kDenseShare = 0.3, kIdShare = 0.6, kPairShare = 0.1;

// Independent uniform numbers in [0, 1), one after the other.
class Uniforms {
 public:
  explicit Uniforms(uint64_t key) : state_(key) {}
  double operator()() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return static_cast<double>(mix64(state_) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

// Nearly normal, of variance 1: the sum of four uniform parts of a hash.
double normal(uint64_t hash) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>((hash >> (16 * i)) & 0xffff) + 0.5;
  return (sum / 65536 - 2) * std::sqrt(3.0);
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

ClickModel::ClickModel(const ClickModelOptions& options) : options_(options) {
  for (size_t f = 0; f < options_.cardinalities.size(); ++f) {
    const int64_t n = options_.cardinalities[f];
    // Multiplying by what has no factor of n in common permutes 0 .. n-1.
    auto step = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(n) * 0.6180339887), 1);
    while (std::gcd(step, n) != 1) ++step;
    const uint64_t offset = mix64(mix64(options_.seed) + f) % static_cast<uint64_t>(n);
    features_.push_back({Zipf(n, options_.zipf), static_cast<uint64_t>(step), offset});
  }
  for (int64_t d = 0; d < options_.num_dense; ++d)
    dense_weights_.push_back(normal(mix64(mix64(options_.seed ^ 0xde45e) + static_cast<uint64_t>(d))));
  options_.pairs = std::min<int64_t>(options_.pairs, static_cast<int64_t>(features_.size()) / 2);

  constexpr int64_t kRows = 20000;
  ClickRow row;
  double ignored = 0;
  std::vector<Parts> parts;
  for (int64_t i = 0; i < kRows; ++i) parts.push_back(draw(kCalibration, i, row, ignored));
  const auto scale = [&](double Parts::*part, double share) {
    double sum = 0, squares = 0;
    for (const Parts& p : parts) {
      sum += p.*part;
      squares += p.*part * (p.*part);
    }
    const double variance = squares / kRows - sum / kRows * (sum / kRows);
    return variance > 0 ? options_.signal * std::sqrt(share / variance) : 0;
  };
  dense_scale_ = scale(&Parts::dense, kDenseShare);
  id_scale_ = scale(&Parts::ids, kIdShare);
  pair_scale_ = scale(&Parts::pairs, kPairShare);
  double low = -50, high = 50;
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    bias_ = (low + high) / 2;
    double clicks = 0;
    for (const Parts& p : parts)
      clicks += sigmoid(bias_ + dense_scale_ * p.dense + id_scale_ * p.ids + pair_scale_ * p.pairs);
    (clicks > options_.click_rate * kRows ? high : low) = bias_;
  }
}

double ClickModel::weight(size_t feature, int64_t rank, uint64_t dimension) const {
  if (rank >= options_.head) return 0;
  return normal(mix64(mix64(mix64(options_.seed + dimension) + feature) + static_cast<uint64_t>(rank)));
}

ClickModel::Parts ClickModel::draw(uint64_t stream, int64_t number, ClickRow& row, double& uniform) const {
  Uniforms next(mix64(mix64(options_.seed ^ mix64(stream)) + static_cast<uint64_t>(number)));
  const auto uniforms = [&next] { return next(); };
  Parts parts;
  row.counts.resize(dense_weights_.size());
  for (size_t d = 0; d < dense_weights_.size(); ++d) {
    const double z = normal(mix64(static_cast<uint64_t>(next() * 0x1p53)));
    row.counts[d] = static_cast<int64_t>(std::exp(kCountMean + kCountDeviation * z));
    parts.dense +=
        dense_weights_[d] * (std::log1p(static_cast<double>(row.counts[d])) - kCountMean) / kCountDeviation;
  }
  row.ids.resize(features_.size());
  const auto num_pair_features = static_cast<size_t>(2 * options_.pairs);
  double left[kPairDims] = {};
  for (size_t f = 0; f < features_.size(); ++f) {
    const Feature& feature = features_[f];
    const int64_t rank = feature.zipf(uniforms);
    const auto n = static_cast<uint64_t>(options_.cardinalities[f]);
    row.ids[f] =
        static_cast<int64_t>((static_cast<unsigned __int128>(rank) * feature.step + feature.offset) % n);
    parts.ids += weight(f, rank, 0);
    if (f >= num_pair_features) continue;
    for (uint64_t k = 0; k < kPairDims; ++k) {
      const double v = weight(f, rank, 1 + k);
      if (f % 2 == 0) {
        left[k] = v;
      } else {
        parts.pairs += left[k] * v;
      }
    }
  }
  uniform = next();
  return parts;
}

void ClickModel::row(uint64_t stream, int64_t number, ClickRow& row) const {
  double uniform = 0;
  const Parts parts = draw(stream, number, row, uniform);
  row.probability =
      sigmoid(bias_ + dense_scale_ * parts.dense + id_scale_ * parts.ids + pair_scale_ * parts.pairs);
  row.click = uniform < row.probability;
}

BestScores best_scores(std::span<const double> probabilities, std::span<const uint8_t> clicks) {
  const size_t n = probabilities.size();
  BestScores scores;
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return probabilities[a] < probabilities[b]; });
  double num_clicks = 0, loss = 0, pairs = 0,
         below = 0;  // below: rows without a click of a lower probability
  for (size_t i = 0; i < n;) {
    size_t end = i;
    double tied_clicks = 0;
    for (; end < n && probabilities[order[end]] == probabilities[order[i]]; ++end) {
      tied_clicks += clicks[order[end]];
    }
    const double tied_rest = static_cast<double>(end - i) - tied_clicks;
    pairs += tied_clicks * (below + tied_rest / 2);
    below += tied_rest;
    num_clicks += tied_clicks;
    const double p = probabilities[order[i]];
    loss -= tied_clicks * std::log(p) + tied_rest * std::log1p(-p);
    i = end;
  }
  const double rate = num_clicks / static_cast<double>(n);
  scores.log_loss = loss / static_cast<double>(n);
  if (num_clicks == 0 || below == 0) return scores;
  scores.auc = pairs / (num_clicks * below);
  scores.normalized_entropy = scores.log_loss / -(rate * std::log(rate) + (1 - rate) * std::log1p(-rate));
  return scores;
}

}  // namespace trainer::records
