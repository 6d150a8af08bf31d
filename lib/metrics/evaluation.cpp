#include "metrics/evaluation.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"
#include "spec/enums.h"

namespace trainer::metrics {
namespace {

using spec::Metric;
using spec::ProblemType;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// counts_: these three, then
//   single label  [L × L] confusion matrix, row: target, column: prediction
//   multi-label   [1 + 4 L] rows that are right as a whole, then for each label true positives,
//                 false positives, false negatives, true negatives
//   regression    [1] sum of squared errors
enum Count { kLossSum, kTargets, kSamples, kOfProblem };

int64_t num_counts(ProblemType problem, int64_t labels) {
  switch (problem) {
    case ProblemType::kSingleLabel:
      return kOfProblem + labels * labels;
    case ProblemType::kMultiLabel:
      return kOfProblem + 1 + 4 * labels;
    case ProblemType::kRegression:
      return kOfProblem + 1;
  }
  return kOfProblem;
}

bool is_correlation(Metric metric) {
  return metric == Metric::kPearson || metric == Metric::kSpearman;
}

double ratio_or_zero(double numerator, double denominator) {
  return denominator == 0 ? 0 : numerator / denominator;
}

double f1(double true_positives, double false_positives, double false_negatives) {
  return ratio_or_zero(2 * true_positives, 2 * true_positives + false_positives + false_negatives);
}

// A view of the confusion matrix with its margins.
struct Confusion {
  std::span<const double> cells;  // [L, L]
  std::vector<double> targets, predictions;
  double right = 0, total = 0;

  Confusion(std::span<const double> c, size_t labels) : cells(c), targets(labels), predictions(labels) {
    for (size_t i = 0; i < labels; ++i) {
      for (size_t j = 0; j < labels; ++j) {
        targets[i] += c[i * labels + j];
        predictions[j] += c[i * labels + j];
        total += c[i * labels + j];
      }
      right += c[i * labels + i];
    }
  }

  double f1_of(size_t label) const {
    const double hit = cells[label * targets.size() + label];
    return f1(hit, predictions[label] - hit, targets[label] - hit);
  }

  double f1_macro() const {
    double sum = 0, occurring = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] + predictions[i] == 0) continue;
      sum += f1_of(i);
      ++occurring;
    }
    return ratio_or_zero(sum, occurring);
  }

  // Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient".
  double mcc() const {
    double both = 0, target_squares = 0, prediction_squares = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      both += targets[i] * predictions[i];
      target_squares += targets[i] * targets[i];
      prediction_squares += predictions[i] * predictions[i];
    }
    const double spread = (total * total - target_squares) * (total * total - prediction_squares);
    return ratio_or_zero(right * total - both, std::sqrt(spread));
  }
};

double single_label(Metric metric, std::span<const double> counts, size_t labels) {
  const Confusion confusion(counts.subspan(kOfProblem), labels);
  if (metric == Metric::kAccuracy) return confusion.right / confusion.total;
  if (metric == Metric::kMcc) return confusion.mcc();
  return labels == 2 ? confusion.f1_of(1) : confusion.f1_macro();
}

double multi_label(Metric metric, std::span<const double> counts, size_t labels) {
  if (metric == Metric::kAccuracy) return counts[kOfProblem] / counts[kSamples];
  double sum_f1 = 0, pooled[4] = {};
  for (size_t i = 0; i < labels; ++i) {
    const auto c = counts.subspan(kOfProblem + 1 + 4 * i, 4);
    sum_f1 += f1(c[0], c[1], c[2]);
    for (size_t j = 0; j < 4; ++j) pooled[j] += c[j];
  }
  if (metric == Metric::kF1) return sum_f1 / static_cast<double>(labels);
  const double matrix[] = {pooled[3], pooled[1], pooled[2], pooled[0]};
  return Confusion(matrix, 2).mcc();
}

// Pearson's r in two passes; NaN as scipy.stats.pearsonr has it.
double pearson(std::span<const double> x, std::span<const double> y) {
  const auto constant = [](std::span<const double> v) {
    return std::all_of(v.begin(), v.end(), [&](double a) { return a == v[0]; });
  };
  if (x.size() < 2 || constant(x) || constant(y)) return kNaN;
  const double n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  // Roots apart: the product of small variances may underflow. NaN in, NaN out: clamp keeps it.
  return std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

// Ranks from 1; ties get the mean of the ranks that they cover.
std::vector<double> average_ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    for (end = begin; end < order.size() && values[order[end]] == values[order[begin]];) ++end;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
  }
  return ranks;
}

double spearman(std::span<const double> x, std::span<const double> y) {
  const auto has_nan = [](std::span<const double> v) {
    return std::any_of(v.begin(), v.end(), [](double a) { return std::isnan(a); });
  };
  if (has_nan(x) || has_nan(y)) return kNaN;  // NaN has no rank, and no place in a sort
  return pearson(average_ranks(x), average_ranks(y));
}

// Mean over the outputs of rows' [n, 2 L] columns l (prediction) and L + l (label).
double correlation(Metric metric, const at::Tensor& rows, int64_t labels) {
  const at::Tensor columns = rows.t().contiguous();  // [2 L, n]
  const auto column = [&](int64_t i) {
    return std::span<const double>(columns.const_data_ptr<double>() + i * columns.size(1),
                                   static_cast<size_t>(columns.size(1)));
  };
  double sum = 0;
  for (int64_t l = 0; l < labels; ++l) {
    sum += metric == Metric::kPearson ? pearson(column(l), column(labels + l))
                                      : spearman(column(l), column(labels + l));
  }
  return sum / static_cast<double>(labels);
}

}  // namespace

ClassificationMetrics::ClassificationMetrics(ProblemType problem, int64_t num_labels,
                                             std::vector<Metric> wanted, at::Device device)
    : EvaluationMetrics(
          torch::zeros({num_counts(problem, num_labels)}, torch::dtype(at::kDouble).device(device))),
      problem_(problem),
      num_labels_(num_labels),
      wanted_(std::move(wanted)),
      needs_rows_(std::any_of(wanted_.begin(), wanted_.end(), is_correlation)) {
  for (const Metric metric : wanted_) {
    if (is_defined(metric, problem)) continue;
    fail<SpecError>(
        "evaluation.metrics: {} is not defined for this model.problem_type; expected of: {}",
        to_string(metric),
        problem == ProblemType::kRegression ? "loss, mse, pearson, spearman" : "loss, accuracy, f1, mcc");
  }
}

void ClassificationMetrics::add(const Predicted& predicted) {
  const auto& [logits, labels, groups, loss_sum] = predicted;
  const int64_t batch = logits.size(0);
  if (batch == 0) return;
  const at::NoGradGuard no_grad;
  counts_[kLossSum].add_(loss_sum);
  counts_[kTargets].add_(labels.numel());
  counts_[kSamples].add_(batch);
  const at::Tensor counts = counts_.slice(0, kOfProblem);
  switch (problem_) {
    case ProblemType::kSingleLabel: {
      const at::Tensor cells = labels * num_labels_ + logits.argmax(1);
      counts.index_add_(0, cells, torch::ones({batch}, counts.options()));
      break;
    }
    case ProblemType::kMultiLabel: {
      const at::Tensor predicted = logits > 0, target = labels > 0.5;  // [B, L]
      counts[0].add_(predicted.eq(target).all(1).sum());
      const at::Tensor cells =
          torch::stack({predicted & target, predicted & ~target, ~predicted & target, ~predicted & ~target},
                       -1);  // [B, L, 4]
      counts.slice(0, 1).add_(cells.sum(0).flatten());
      break;
    }
    case ProblemType::kRegression: {
      const at::Tensor predicted = logits.to(at::kDouble),
                       target = labels.reshape({batch, -1}).to(at::kDouble);
      counts[0].add_((predicted - target).square().sum());
      if (needs_rows_) rows_.push_back(torch::cat({predicted, target}, 1));
      break;
    }
  }
}

at::Tensor ClassificationMetrics::rows() const {
  return rows_.empty() ? torch::zeros({0, 2 * num_labels_}, counts_.options()) : torch::cat(rows_);
}

Evaluation ClassificationMetrics::compute(const at::Tensor& all_rows) const {
  const at::Tensor on_host = counts_.cpu();
  const std::span<const double> counts(on_host.const_data_ptr<double>(),
                                       static_cast<size_t>(on_host.numel()));
  const auto labels = static_cast<size_t>(num_labels_);
  Evaluation evaluation;
  for (const Metric metric : wanted_) {
    double& value = evaluation.values[metric];
    if (counts[kSamples] == 0) {
      value = kNaN;
    } else if (metric == Metric::kLoss) {
      value = counts[kLossSum] / counts[kTargets];
    } else if (metric == Metric::kMse) {
      value = counts[kOfProblem] / counts[kTargets];
    } else if (is_correlation(metric)) {
      value = correlation(metric, all_rows.cpu(), num_labels_);
    } else if (problem_ == ProblemType::kSingleLabel) {
      value = single_label(metric, counts, labels);
    } else {
      value = multi_label(metric, counts, labels);
    }
  }
  return evaluation;
}

bool is_defined(Metric metric, ProblemType problem) {
  switch (metric) {
    case Metric::kLoss:
      return true;
    case Metric::kAccuracy:
    case Metric::kF1:
    case Metric::kMcc:
      return problem != ProblemType::kRegression;
    case Metric::kPearson:
    case Metric::kSpearman:
    case Metric::kMse:
      return problem == ProblemType::kRegression;
    default:  // of other models
      return false;
  }
}

bool is_better(Metric metric, double value, double than) {
  switch (metric) {
    case Metric::kLoss:
    case Metric::kMse:
    case Metric::kPerplexity:
    case Metric::kBitsPerByte:
    case Metric::kLogLoss:
    case Metric::kNormalizedEntropy:
      return value < than;
    case Metric::kCalibration:
      return std::abs(value - 1) < std::abs(than - 1);
    default:
      return value > than;
  }
}

}  // namespace trainer::metrics
