#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/state.h"
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
  std::function<std::string()> data_fingerprint;     // of the training data; takes time
  std::optional<std::filesystem::path> resume_from;  // the checkpoint that training goes on from
};

// The training loop; every rank runs the same.
class Trainer {
 public:
  explicit Trainer(const Parts& parts);
  // False: preempted, by a request to stop. Throws NumericError when gradients stay inf or NaN, or the loss does not fall
  // where the job says it must.
  bool run();

 private:
  // All that resuming must restore.
  checkpoint::State state();
  void resume(const std::filesystem::path& from);
  void train_step();
  void checkpoint();
  // Of the mean weights, where there are such.
  void save(const std::string& name);
  void meet(report::Request request);
  void finish();
  bool evaluation_due() const;
  bool checkpoint_due() const;
  void evaluate();

  Parts p_;
  DeviceFeed feed_;
  Requests requests_;
  Reporter reporter_;
  SkippedSteps skipped_;
  BestModel best_;
  embedding::ShardedEmbedding* tables_;  // the model's, that no optimizer knows; null: it has none
  double table_lr_;                      // their learning rate by the optimizer's

  int64_t step_ = 0;                            // optimizer steps done
  double epoch_ = 0;                            // with a fraction
  int64_t data_epoch_ = 0, data_position_ = 0;  // where the next step's samples begin
  bool at_end_of_epoch_ = false;
  int64_t num_skipped_ = 0;  // as last looked
  int64_t saved_step_ = 0;   // of the last checkpoint
  std::string fingerprint_;  // of the data, once it is asked for
};

}  // namespace trainer::train
