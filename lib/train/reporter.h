#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/loader.h"
#include "dist/communicator.h"
#include "job/job.h"
#include "metrics/console.h"
#include "metrics/jsonl.h"
#include "metrics/meters.h"
#include "optim/step_control.h"
#include "tensors/named.h"
#include "train/requests.h"

namespace trainer::train {

// Turns what the loop does into numbers: console, metrics.jsonl, the summary. Between log lines nothing here
// waits for the device. The main rank alone prints and writes; the others only take part in the sums.
class Reporter {
 public:
  // `requests`: its votes go along with the sums of the log steps.
  Reporter(const Job& job, const c10::Device& device, dist::Communicator& communicator,
           report::ProgressPage& progress, Requests& requests, int64_t total_steps, double total_epochs);

  // Before the first step, and after state() was filled where training goes on: opens metrics.jsonl, whose records after
  // that step are dropped.
  void begin();
  // Views of what the numbers so far are made of; of the main rank's time.
  tensors::NamedTensors state();
  // Views of this rank's own sums since the last log line.
  tensors::NamedTensors rank_sums();

  metrics::PhaseTimes& phases() { return phases_; }
  // Every micro-batch of this rank. loss_sum: [] fp32; flops: executed, forward and backward.
  void add(const at::Tensor& loss_sum, const data::Batch& batch, double flops);
  // Whether this step is one to log.
  bool is_due(int64_t step) const { return step % every_ == 0 || step == total_steps_; }
  // After the optimizer. num_targets: of all ranks. `log`: make a record of the steps since the last one; then it is a
  // collective.
  void end_step(int64_t step, double epoch, const optim::StepResult& result, int64_t num_targets,
                int64_t skipped_steps, bool log);
  void evaluation(metrics::EvaluationRecord record);
  void finish(const metrics::EvaluationRecord& last, const metrics::EvaluationRecord& best);

  // Mean losses of the first and the last log interval.
  double first_loss() const { return first_loss_; }
  double last_loss() const { return record_.loss; }
  double elapsed_s() const { return elapsed_before_s_ + monotonic_s() - begin_s_; }

 private:
  double mfu(double flops_per_s) const;

  c10::Device device_;
  dist::Communicator& communicator_;
  report::ProgressPage& progress_;
  Requests& requests_;
  int64_t every_, total_steps_;
  bool is_main_;
  std::filesystem::path records_path_;
  std::optional<double> peak_flops_;  // of all devices
  metrics::Console console_;
  std::optional<metrics::JsonlFile> records_;
  int64_t records_bytes_ = 0;  // at the last state()
  metrics::PhaseTimes phases_;
  double begin_s_, elapsed_before_s_ = 0;

  // Since the last log line.
  at::Tensor loss_sum_;  // [] fp64, of this rank
  metrics::Work work_;   // of this rank
  int64_t num_targets_ = 0;
  double interval_begin_s_ = 0;  // training time

  metrics::Work total_work_;  // of all ranks
  metrics::StepRecord record_;
  int64_t steps_ = 0;
  double first_loss_ = metrics::kNotMeasured;
};

}  // namespace trainer::train
