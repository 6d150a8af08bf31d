#pragma once

#include <filesystem>
#include <string_view>

#include "spec/job_spec.h"

namespace trainer {

// What the workers of a job do with it.
struct Task {
  enum class Kind { kTrain, kEvaluate, kPredict };
  Kind kind = Kind::kTrain;
  // Of kEvaluate and kPredict: a saved model; empty: the job's best, else its final one.
  std::filesystem::path model;
  // Of kEvaluate: a JSON file, empty: evaluation.json in the job's output directory. Of kPredict: a .csv or .parquet.
  std::filesystem::path output;
};

// The subcommand of `trainer`: "run", "eval" or "predict".
std::string_view name(Task::Kind kind);

// The job of a task on a saved model, which has `task.model` filled in: its weights and its own tokenizer or features, and
// of the data what it is judged by alone; what it was trained on need not be there. Throws SpecError where there is no such
// model, nothing to judge it by, or no predictions of that type of model.
spec::JobSpec for_saved_model(spec::JobSpec spec, Task& task);

// Whether `task.output` can be written by this process and has a known ending. Throws SpecError.
void check_output(const Task& task);

}  // namespace trainer
