#pragma once

#include <c10/core/Device.h>

#include "dist/communicator.h"
#include "job/job.h"
#include "model/model.h"
#include "report/progress.h"
#include "train/job_data.h"

namespace trainer::train {

// Evaluates on data.validation: every sample once over all ranks, metrics from summed counts.
class Evaluator {
 public:
  // `data`: with a validation set.
  Evaluator(const Job& job, const JobData& data, c10::Device device, dist::Communicator& communicator,
            report::ProgressPage& progress)
      : job_(job), data_(data), device_(device), communicator_(communicator), progress_(progress) {}
  // A collective. Leaves the model in training mode. All ranks get the same values.
  metrics::Evaluation run(model::Model& model) const;
  int64_t num_samples() const { return num_evaluation_samples(job_, data_); }

 private:
  const Job& job_;
  const JobData& data_;
  c10::Device device_;
  dist::Communicator& communicator_;
  report::ProgressPage& progress_;
};

}  // namespace trainer::train
