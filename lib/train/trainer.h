#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "data/loader.h"
#include "dist/communicator.h"
#include "dist/gradient_sync.h"
#include "job/job.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/step_control.h"
#include "report/progress.h"
#include "train/best_model.h"
#include "train/device_feed.h"
#include "train/ema.h"
#include "train/evaluator.h"
#include "train/reporter.h"
#include "train/requests.h"
#include "train/skipped_steps.h"

namespace trainer::train {

// What the loop works with; all outlive it.
struct Parts {
  const Job& job;
  c10::Device device;
  dist::Communicator& communicator;
  model::Model& model;
  data::Loader& loader;
  const Evaluator* evaluator;  // null: no validation data
  dist::GradientSync& gradient_sync;
  optim::Optimizer& optimizer;
  optim::StepControl& step_control;
  Ema& ema;
  report::ProgressPage& progress;
  int64_t total_steps;
  double total_epochs;
};

// The training loop; every rank runs the same.
class Trainer {
 public:
  explicit Trainer(const Parts& parts);
  // False: preempted, by a request to stop. Throws NumericError when gradients stay inf or NaN, or the loss does not fall
  // where the job says it must.
  bool run();

 private:
  void train_step();
  // Of the mean weights, where there are such.
  void save(const std::string& name);
  void meet(report::Request request);
  void finish();
  bool evaluation_due() const;
  void evaluate();

  Parts p_;
  DeviceFeed feed_;
  Requests requests_;
  Reporter reporter_;
  SkippedSteps skipped_;
  BestModel best_;

  int64_t step_ = 0;  // optimizer steps done
  double epoch_ = 0;  // with a fraction
  bool at_end_of_epoch_ = false;
  int64_t num_skipped_ = 0;  // as last looked
};

}  // namespace trainer::train
