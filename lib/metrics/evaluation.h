#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "spec/job_spec.h"

// n samples, B of them in a batch; L labels (outputs).

namespace trainer::metrics {

// Metrics of an evaluation, equal to scikit-learn's and scipy's on the whole data set, never averages of
// averages. Counts are plain fp64 sums, so that ranks sum them with one all-reduce; the correlations need
// every prediction, gathered: Spearman for its ranks, Pearson because sums of squares cancel where the values
// are far from 0.
//
//   loss      loss sum ÷ number of targets
//   accuracy  single label: of the arg max; multi-label: of the whole row (scikit-learn's subset accuracy)
//   f1        two labels: of label 1; more: macro over the labels that occur in targets or predictions;
//             multi-label: macro over all labels. 0 where it would be 0 ÷ 0.
//   mcc       of all decisions; multi-label: of the n × L binary ones together. 0 where it would be 0 ÷ 0.
//   pearson, spearman, mse
//             regression, mean over the outputs; the correlations are NaN of fewer than two rows and of
//             constants
// Everything is NaN without samples. A multi-label decision is logit > 0.
class EvaluationMetrics {
 public:
  // Throws SpecError when a wanted metric is not defined for the problem.
  EvaluationMetrics(spec::ProblemType problem, int64_t num_labels, std::vector<spec::Metric> wanted,
                    at::Device device = at::kCPU);

  // logits: [B, L]; labels: as data::TextBatch; loss_sum: []; all on `device`; B may be 0. No device sync.
  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& loss_sum);

  at::Tensor& counts() { return counts_; }  // [K] fp64, to be summed over ranks
  at::Tensor rows() const;  // [n, 2 L] fp64 predictions and labels; [0, 2 L] unless a metric needs them
  // `all_rows`: rows() of all ranks, in any order. Waits for the device.
  std::map<spec::Metric, double> compute(const at::Tensor& all_rows) const;

 private:
  spec::ProblemType problem_;
  int64_t num_labels_;
  std::vector<spec::Metric> wanted_;
  bool needs_rows_;
  at::Tensor counts_;
  std::vector<at::Tensor> rows_;
};

// Whether the metric is defined for the problem.
bool is_defined(spec::Metric metric, spec::ProblemType problem);
// Whether a larger value is better.
bool larger_is_better(spec::Metric metric);

}  // namespace trainer::metrics
