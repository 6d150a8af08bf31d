#pragma once

#include <string>

#include "job/job.h"
#include "metrics/jsonl.h"
#include "model/model.h"

namespace trainer::train {

// Which evaluation was the best by evaluation.best, and when to stop waiting for a better one. Every rank
// sees the same values and so decides the same.
class BestModel {
 public:
  explicit BestModel(const Job& job);
  // True when this is the best so far. An undefined (NaN) value is never better.
  bool consider(const metrics::EvaluationRecord& record);
  bool out_of_patience() const { return patience_ > 0 && since_best_ >= patience_; }
  const metrics::EvaluationRecord& last() const { return last_; }
  const metrics::EvaluationRecord& best() const { return best_; }

 private:
  std::optional<spec::Metric> metric_;
  int64_t patience_;
  int64_t since_best_ = 0;  // evaluations
  metrics::EvaluationRecord last_, best_;
};

// Saves the model as the Hugging Face directory <output_dir>/<name>, whole or not at all. The main rank
// writes; the others return at once.
void save_model(const Job& job, const model::Model& model, const std::string& name);

}  // namespace trainer::train
