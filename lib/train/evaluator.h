#pragma once

#include <c10/core/Device.h>

#include <map>
#include <memory>

#include "data/text_classification.h"
#include "dist/communicator.h"
#include "job/job.h"
#include "model/model.h"
#include "report/progress.h"

namespace trainer::train {

// Evaluates on data.validation: every sample once over all ranks, metrics from summed counts.
class Evaluator {
 public:
  Evaluator(const Job& job, std::shared_ptr<const data::TextClassification> dataset, c10::Device device,
            dist::Communicator& communicator, report::ProgressPage& progress)
      : job_(job),
        dataset_(std::move(dataset)),
        device_(device),
        communicator_(communicator),
        progress_(progress) {}
  // A collective. Leaves the model in training mode. All ranks get the same values.
  std::map<spec::Metric, double> run(model::Model& model) const;
  int64_t num_samples() const { return dataset_->size(); }

 private:
  const Job& job_;
  std::shared_ptr<const data::TextClassification> dataset_;
  c10::Device device_;
  dist::Communicator& communicator_;
  report::ProgressPage& progress_;
};

}  // namespace trainer::train
