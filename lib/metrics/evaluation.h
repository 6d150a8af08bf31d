#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::metrics {

// Metrics of an evaluation from summed counts, never averages of averages. Counts are plain fp64 vectors so that ranks
// sum them with one all-reduce; what needs every prediction (Spearman) is gathered.
class EvaluationMetrics {
 public:
  EvaluationMetrics(spec::ProblemType problem, int64_t num_labels, std::vector<spec::Metric> wanted);

  // logits: [B, L]; labels: as data::TextBatch; loss_sum: []; any device; B may be 0. Adds on the device, without a
  // device sync.
  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& loss_sum);

  at::Tensor& counts();            // [K] fp64, to be summed over ranks
  at::Tensor rows() const;         // [n, 2 L] fp64 predictions and labels, [0, 2 L] unless a metric needs them
  // `all_rows`: rows() of all ranks. NaN where a metric is undefined is written as scikit-learn and scipy have it.
  std::map<spec::Metric, double> compute(const at::Tensor& all_rows) const;

 private:
  spec::ProblemType problem_;
  int64_t num_labels_;
  std::vector<spec::Metric> wanted_;
  at::Tensor counts_;
  std::vector<at::Tensor> rows_;
};

// Whether a larger value is better.
bool larger_is_better(spec::Metric metric);
const char* name(spec::Metric metric);

}  // namespace trainer::metrics
