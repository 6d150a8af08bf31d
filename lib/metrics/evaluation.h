#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spec/job_spec.h"

// n samples, B of them in a batch; L labels (outputs).

namespace trainer::metrics {

// What a model said of a batch, all on one device; B may be 0.
struct Predicted {
  at::Tensor logits;    // [B, L]; undefined for a language model
  at::Tensor labels;    // as data::Batch
  at::Tensor groups;    // [B] int64, as data::Records; or undefined
  at::Tensor loss_sum;  // []
};

// What an evaluation found.
struct Evaluation {
  std::map<spec::Metric, double> values;
  std::map<std::string, double> details;  // on how a value came about, e.g. "auc_error"
  std::vector<std::string> warnings;      // e.g. why a value is NaN
};

// What an evaluation counts. Counts are plain fp64 sums, so that ranks sum them with one all-reduce; metrics are computed
// from sums over all samples, never averages of averages. NaN without samples.
class EvaluationMetrics {
 public:
  virtual ~EvaluationMetrics() = default;
  // On the device of the counts. No device sync.
  virtual void add(const Predicted& batch) = 0;
  at::Tensor& counts() { return counts_; }  // [K] fp64, to be summed over ranks
  virtual at::Tensor rows() const = 0;      // [n, R], what can not be summed: to be gathered from all ranks
  // `all_rows`: rows() of all ranks, in any order. Waits for the device.
  virtual Evaluation compute(const at::Tensor& all_rows) const = 0;

 protected:
  explicit EvaluationMetrics(at::Tensor counts) : counts_(std::move(counts)) {}
  at::Tensor counts_;
};

// Equal to scikit-learn's and scipy's on the whole data set. The correlations need every prediction, gathered: Spearman
// for its ranks, Pearson because sums of squares cancel where the values are far from 0.
//
//   loss      loss sum ÷ number of targets
//   accuracy  single label: of the arg max; multi-label: of the whole row (scikit-learn's subset accuracy)
//   f1        two labels: of label 1; more: macro over the labels that occur in targets or predictions;
//             multi-label: macro over all labels. 0 where it would be 0 ÷ 0.
//   mcc       of all decisions; multi-label: of the n × L binary ones together. 0 where it would be 0 ÷ 0.
//   pearson, spearman, mse
//             regression, mean over the outputs; the correlations are NaN of fewer than two rows and of
//             constants
// A multi-label decision is logit > 0.
class ClassificationMetrics : public EvaluationMetrics {
 public:
  // Throws SpecError when a wanted metric is not defined for the problem.
  ClassificationMetrics(spec::ProblemType problem, int64_t num_labels, std::vector<spec::Metric> wanted,
                        at::Device device = at::kCPU);

  void add(const Predicted& batch) override;
  // [n, 2 L] fp64, predictions and labels; [0, 2 L] unless a metric needs them
  at::Tensor rows() const override;
  Evaluation compute(const at::Tensor& all_rows) const override;

 private:
  spec::ProblemType problem_;
  int64_t num_labels_;
  std::vector<spec::Metric> wanted_;
  bool needs_rows_;
  std::vector<at::Tensor> rows_;
};

// Whether the metric is defined for the problem.
bool is_defined(spec::Metric metric, spec::ProblemType problem);
// Whether `value` is better than `than`: larger or smaller, as the metric has it; of calibration, nearer to 1. NaN is
// never better.
bool is_better(spec::Metric metric, double value, double than);

}  // namespace trainer::metrics
