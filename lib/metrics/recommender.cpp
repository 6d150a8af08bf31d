#include "metrics/recommender.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "metrics/auc.h"
#include "spec/enums.h"

namespace trainer::metrics {

using spec::Metric;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// counts_: these sums, then the bins [2, kBins] of the scores of negatives and of positives.
enum Count { kLossSum, kRows, kLabels, kLogLoss, kPredictions, kScores, kScoreSquares, kNotNumbers, kOfBins };

// Of x in [-kEdge, kEdge], all else in the outer ones: 3e-5 wide.
constexpr int64_t kBins = int64_t{1} << 20;
constexpr double kEdge = 16;

at::Tensor bins_of(const at::Tensor& scores) {
  return scores.add(kEdge).mul(kBins / (2 * kEdge)).nan_to_num(0).clamp(0, kBins - 1).to(at::kLong);
}

// row_key() of scores [B] fp32, labels [B] bool -> [B] int64
at::Tensor row_keys(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor bits = scores.add(0.0F).view(at::kInt);
  const at::Tensor ordered = at::where(bits < 0, bits.bitwise_xor(0x7fffffff), bits);
  return ordered.to(at::kLong) * 2 + labels;
}

// A number in [0, 2^24) of each group, as if drawn: the upper bits of a product depend on all lower ones.
constexpr int64_t kDraws = int64_t{1} << 24;
at::Tensor draws(const at::Tensor& groups) {
  const auto mix = [](const at::Tensor& x) {
    const at::Tensor product = x * static_cast<int64_t>(0x9e3779b97f4a7c15ULL);
    return product.bitwise_xor(product.bitwise_right_shift(32));
  };
  return mix(mix(groups)).bitwise_right_shift(24).bitwise_and(kDraws - 1);
}

std::span<const int64_t> column(const at::Tensor& columns, int64_t i) {
  return {columns.const_data_ptr<int64_t>() + i * columns.size(1), static_cast<size_t>(columns.size(1))};
}

double entropy(double mean) {
  return -(mean * std::log(mean) + (1 - mean) * std::log1p(-mean));
}

}  // namespace

RecommenderMetrics::RecommenderMetrics(std::vector<Metric> wanted, int64_t num_samples, at::Device device,
                                       int64_t max_rows)
    : EvaluationMetrics({}),
      wanted_(std::move(wanted)),
      binned_(num_samples > max_rows),
      grouped_(wants(Metric::kGroupedAuc)) {
  const bool has_bins = binned_ && wants(Metric::kAuc);
  counts_ = torch::zeros({kOfBins + (has_bins ? 2 * kBins : 0)}, torch::dtype(at::kDouble).device(device));
  if (binned_) sampled_ = static_cast<double>(max_rows) / static_cast<double>(num_samples);
}

bool RecommenderMetrics::wants(Metric metric) const {
  return std::count(wanted_.begin(), wanted_.end(), metric) > 0;
}

void RecommenderMetrics::add(const Predicted& batch) {
  if (batch.logits.size(0) == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor scores = batch.logits.reshape(-1).to(at::kFloat);  // [B]
  const at::Tensor labels = batch.labels.reshape(-1) > 0.5;           // [B]
  const at::Tensor x = scores.to(at::kDouble), y = labels.to(at::kDouble);
  const at::Tensor wrong = x * (1 - 2 * y);  // the logit of the other label
  const at::Tensor log_loss = wrong.clamp_min(0) + wrong.abs().neg().exp().log1p();
  const at::Tensor sums =
      at::stack({at::ones_like(x), y, log_loss, x.sigmoid(), x, x.square(), x.isnan().to(at::kDouble)})
          .sum(1);
  counts_[kLossSum].add_(batch.loss_sum);
  counts_.slice(0, kRows, kOfBins).add_(sums);
  if (binned_ && counts_.size(0) > kOfBins) {
    counts_.slice(0, kOfBins).index_add_(0, bins_of(x) + labels * kBins, at::ones_like(x));
  }
  if (grouped_ || (!binned_ && wants(Metric::kAuc))) keep_rows(scores, labels, batch.groups);
}

void RecommenderMetrics::keep_rows(const at::Tensor& scores, const at::Tensor& labels,
                                   const at::Tensor& groups) {
  std::vector<at::Tensor> columns = {row_keys(scores, labels)};
  if (grouped_) {
    if (!groups.defined()) {
      fail<SpecError>(
          "evaluation.metrics: got grouped_auc, but rows have no group; expected data.features.group");
    }
    columns.push_back(groups);
  }
  at::Tensor rows = at::stack(columns, 1);
  if (binned_) {
    const at::Tensor in_sample = draws(groups) < static_cast<int64_t>(sampled_ * static_cast<double>(kDraws));
    rows = rows.index({in_sample});
  }
  rows_.push_back(std::move(rows));
}

at::Tensor RecommenderMetrics::rows() const {
  if (!rows_.empty()) return at::cat(rows_);
  return at::zeros({0, grouped_ ? 2 : 1}, counts_.options().dtype(at::kLong));
}

void RecommenderMetrics::add_aucs(const at::Tensor& all_rows, const double* counts,
                                  Evaluation& evaluation) const {
  const at::Tensor columns = all_rows.cpu().t().contiguous();  // [1 or 2, n]
  if (wants(Metric::kAuc)) {
    const auto bins = [&](int64_t label) {
      return std::span<const double>(counts + kOfBins + label * kBins, static_cast<size_t>(kBins));
    };
    const PairCounter pairs = binned_ ? count_pairs(bins(0), bins(1)) : count_pairs(column(columns, 0));
    evaluation.values[Metric::kAuc] = pairs.auc();
    if (binned_) evaluation.details["auc_error"] = pairs.error_bound();
  }
  if (grouped_) {
    const GroupedAuc grouped = grouped_auc(column(columns, 0), column(columns, 1));
    evaluation.values[Metric::kGroupedAuc] = grouped.auc;
    evaluation.details["grouped_auc_groups"] = static_cast<double>(grouped.groups);
    evaluation.details["grouped_auc_one_class"] = static_cast<double>(grouped.one_class);
    if (binned_) evaluation.details["grouped_auc_sampled"] = sampled_;
    if (grouped.groups == 0) {
      evaluation.warnings.push_back(fmt::format(
          "grouped_auc is not defined: each of {} groups has labels of one class", grouped.one_class));
    }
  }
}

Evaluation RecommenderMetrics::compute(const at::Tensor& all_rows) const {
  const at::Tensor on_host = counts_.cpu();
  const double* counts = on_host.const_data_ptr<double>();
  const double rows = counts[kRows], labels = counts[kLabels];
  Evaluation evaluation;
  auto& [values, details, warnings] = evaluation;
  for (const Metric metric : wanted_) values[metric] = kNaN;
  if (rows == 0) return evaluation;
  const double log_loss = counts[kLogLoss] / rows;
  const bool one_class = labels == 0 || labels == rows;
  for (auto& [metric, value] : values) {
    if (metric == Metric::kLoss) value = counts[kLossSum] / rows;
    if (metric == Metric::kLogLoss) value = log_loss;
    if (metric == Metric::kNormalizedEntropy && !one_class) value = log_loss / entropy(labels / rows);
    if (metric == Metric::kCalibration && labels > 0) value = counts[kPredictions] / labels;
  }
  if (counts[kNotNumbers] > 0) {
    warnings.push_back(fmt::format("{:.0f} of {:.0f} predictions are NaN", counts[kNotNumbers], rows));
    return evaluation;  // NaN has no rank
  }
  add_aucs(all_rows, counts, evaluation);
  if (one_class) {
    std::string undefined;
    for (const auto& [metric, value] : values) {
      if (metric != Metric::kGroupedAuc && std::isnan(value))
        undefined += fmt::format("{}{}", undefined.empty() ? "" : ", ", spec::to_string(metric));
    }
    if (!undefined.empty())
      warnings.push_back(
          fmt::format("{} not defined: all {:.0f} labels are {}", undefined, rows, labels == 0 ? 0 : 1));
  }
  // Centred squares cancel to about 1e-16 of the squares, so a spread of 1e-6 of the mean is well above the noise.
  const double mean = counts[kScores] / rows, variance = counts[kScoreSquares] / rows - mean * mean;
  if (rows > 1 && variance <= 1e-12 * mean * mean) {
    warnings.push_back(fmt::format("predictions are constant: {:.6g} for each of {:.0f} rows",
                                   counts[kPredictions] / rows, rows));
  }
  return evaluation;
}

}  // namespace trainer::metrics
