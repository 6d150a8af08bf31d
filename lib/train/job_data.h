#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "data/dataset.h"
#include "job/estimate.h"
#include "job/job.h"
#include "metrics/evaluation.h"
#include "model/model.h"

namespace trainer::train {

// What a job trains on and is judged by, as its type of model has it.
struct JobData {
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> validation;  // null: none
  model::DataInfo info;
  at::Tensor token_bytes;  // [V] int32, the bytes that a token stands for; of a language model
};

// Throws DataError or SpecError with what is wrong with the files. needs_labels: else files may lack the label's column.
JobData open_job_data(const Job& job, bool needs_labels = true);

// Of `samples` that are used for `steps` optimizer steps, without the mean of tokens.
DataSize data_size(const JobData& data, int64_t samples, int64_t steps);

// How many samples an evaluation has, over all ranks. `data`: with a validation set.
int64_t num_evaluation_samples(const Job& job, const JobData& data);

// What the job's evaluations count.
std::unique_ptr<metrics::EvaluationMetrics> make_evaluation_metrics(const Job& job, const JobData& data,
                                                                    c10::Device device);

}  // namespace trainer::train
