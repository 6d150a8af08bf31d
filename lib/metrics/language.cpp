#include "metrics/language.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace trainer::metrics {

using spec::Metric;

namespace {

enum Count { kLossSum, kTargets, kBytes, kNumCounts };

}  // namespace

LanguageMetrics::LanguageMetrics(std::vector<Metric> wanted, const at::Tensor& token_bytes, at::Device device)
    : EvaluationMetrics(torch::zeros({kNumCounts}, torch::dtype(at::kDouble).device(device))),
      wanted_(std::move(wanted)) {
  if (std::count(wanted_.begin(), wanted_.end(), Metric::kBitsPerByte) > 0)
    token_bytes_ = token_bytes.to(device);
}

void LanguageMetrics::add(const Predicted& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& labels = batch.labels;
  const at::Tensor is_target = labels >= 0;
  counts_[kLossSum].add_(batch.loss_sum);
  counts_[kTargets].add_(is_target.sum());
  if (token_bytes_.defined()) {
    counts_[kBytes].add_((token_bytes_.index_select(0, labels.clamp_min(0)) * is_target).sum());
  }
}

at::Tensor LanguageMetrics::rows() const {
  return torch::zeros({0, 1}, counts_.options());
}

Evaluation LanguageMetrics::compute(const at::Tensor&) const {
  const at::Tensor on_host = counts_.cpu();
  const double* counts = on_host.const_data_ptr<double>();
  const double loss = counts[kLossSum] / counts[kTargets];  // 0 ÷ 0 is NaN
  Evaluation evaluation;
  for (const Metric metric : wanted_) {
    evaluation.values[metric] = metric == Metric::kLoss ? loss
                                : metric == Metric::kPerplexity
                                    ? std::exp(loss)
                                    : counts[kLossSum] / std::log(2.0) / counts[kBytes];
  }
  return evaluation;
}

}  // namespace trainer::metrics
