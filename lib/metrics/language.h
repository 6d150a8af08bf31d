#pragma once

#include <vector>

#include "metrics/evaluation.h"

namespace trainer::metrics {

// Of a language model, over all targets (tokens with a label that is not -100).
//
//   loss           mean negative log-likelihood of a token, in nats
//   perplexity     exp(loss)
//   bits_per_byte  of the text that the tokens stand for: loss sum ÷ ln 2 ÷ bytes; comparable between tokenizers
class LanguageMetrics : public EvaluationMetrics {
 public:
  // token_bytes: [V] int32, the bytes that a token stands for; only bits_per_byte needs it.
  LanguageMetrics(std::vector<spec::Metric> wanted, const at::Tensor& token_bytes,
                  at::Device device = at::kCPU);

  void add(const Predicted& batch) override;
  at::Tensor rows() const override;
  Evaluation compute(const at::Tensor& all_rows) const override;

 private:
  std::vector<spec::Metric> wanted_;
  at::Tensor token_bytes_;
};

}  // namespace trainer::metrics
