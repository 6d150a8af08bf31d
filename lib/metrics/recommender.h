#pragma once

#include <cstdint>
#include <vector>

#include "metrics/evaluation.h"

namespace trainer::metrics {

// Of a model of clicks: one logit x a row, labels 0 and 1; p = sigmoid(x). B rows in a batch, n in the evaluation.
//
//   loss                loss sum ÷ rows
//   log_loss            mean of -ln of the probability that the label was given, in fp64
//   normalized_entropy  log_loss ÷ the entropy of the mean label: below 1 is better than to predict that mean always (He
//                       et al. 2014, "Practical lessons from predicting clicks on ads at Facebook")
//   calibration         sum of p ÷ sum of labels: above 1 predicts too many clicks
//   auc, grouped_auc    see auc.h; by x, which has fewer ties than p
//
// AUC is exact while the evaluation has at most `max_rows` rows: 8 bytes of each (16 with groups) are gathered on every
// rank. Above that it is counted in bins of x, with details["auc_error"], the bound of what that may cost; and
// grouped_auc is of a sample of the groups, whole ones, of about `max_rows` rows, with details["grouped_auc_sampled"].
// A value that is not defined (labels of one class, NaN predictions) is NaN with a warning.
class RecommenderMetrics : public EvaluationMetrics {
 public:
  static constexpr int64_t kMaxRows = 10'000'000;

  // num_samples: of the evaluation, on all ranks.
  RecommenderMetrics(std::vector<spec::Metric> wanted, int64_t num_samples, at::Device device = at::kCPU,
                     int64_t max_rows = kMaxRows);

  // logits: [B] or [B, 1]. Waits for the device only where groups are sampled. Throws SpecError when grouped_auc is
  // wanted of rows without groups.
  void add(const Predicted& batch) override;
  at::Tensor rows() const override;
  Evaluation compute(const at::Tensor& all_rows) const override;

 private:
  bool wants(spec::Metric metric) const;
  void keep_rows(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& groups);
  void add_aucs(const at::Tensor& all_rows, const double* counts, Evaluation& evaluation) const;

  std::vector<spec::Metric> wanted_;
  bool binned_, grouped_;
  double sampled_ = 1;            // part of the groups
  std::vector<at::Tensor> rows_;  // [B, 1] or [B, 2] int64 each: row_key(), and the group
};

}  // namespace trainer::metrics
