#pragma once

#include <optional>
#include <vector>

#include "job/job.h"
#include "metrics/jsonl.h"
#include "tensors/named.h"

namespace trainer::train {

// Which evaluation was the best by evaluation.best, and when to stop waiting for a better one. Every rank
// sees the same values and so decides the same.
class BestModel {
 public:
  explicit BestModel(const Job& job);
  // True when this is the best so far. An undefined (NaN) value is never better.
  bool consider(const metrics::EvaluationRecord& record);
  bool out_of_patience() const { return patience_ > 0 && since_best_ >= patience_; }
  // Views: how long no evaluation was better, and the records of the last and the best.
  tensors::NamedTensors state();
  const metrics::EvaluationRecord& last() const { return last_; }
  const metrics::EvaluationRecord& best() const { return best_; }

 private:
  std::vector<spec::Metric> metrics_;  // that are measured
  std::optional<spec::Metric> metric_;
  int64_t patience_;
  int64_t since_best_ = 0;  // evaluations
  metrics::EvaluationRecord last_, best_;
};

}  // namespace trainer::train
