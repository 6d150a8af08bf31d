#pragma once

#include <c10/core/Device.h>

#include "dist/communicator.h"
#include "job/job.h"
#include "job/task.h"
#include "model/model.h"
#include "report/progress.h"
#include "train/job_data.h"

namespace trainer::train {

// What evaluate() and predict() work with, on every rank.
struct SavedModelParts {
  const Job& job;  // of for_saved_model()
  const Task& task;
  const JobData& data;
  c10::Device device;
  dist::Communicator& communicator;
  report::ProgressPage& progress;
  model::Model& model;
};

// Throws SpecError when the directory has not all weights of the job's model, or one of another problem.
void check_saved_model(const Job& job, const model::LoadReport& report);

// A collective. The main rank prints what the job's metrics are and writes it to task.output, as JSON.
void evaluate(const SavedModelParts& parts);

// A collective. The main rank writes the prediction for each sample of data.validation to task.output, in the samples' order
// (see predictions.h), as a whole or not at all.
void predict(const SavedModelParts& parts);

}  // namespace trainer::train
