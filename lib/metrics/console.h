#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/jsonl.h"
#include "spec/job_spec.h"

namespace trainer::metrics {

// A title, then "  label  value" with the values in one column; used for a run's header and its summary.
std::string table(std::string_view title, const std::vector<std::pair<std::string, std::string>>& rows);

struct Plan {
  int64_t total_steps = 0;
  double total_epochs = 0;
};

// "step 120/690  epoch 0.52/3  loss 0.5312  lr 4.60e-05  38.4 samples/s  2035 tokens/s  4:12 left"
std::string progress_line(const StepRecord& record, const Plan& plan, double seconds_left);
// A bar, the time left, then the fields above as far as they fit into `columns`.
std::string progress_bar(const StepRecord& record, const Plan& plan, double seconds_left, int64_t columns);
// "evaluation at step 230, epoch 1: loss 0.4521  accuracy 0.8431  (408 samples in 4.1 s)  best so far"
std::string evaluation_line(const EvaluationRecord& record);
// A saved model's: its place, the data, then a line a metric.
std::string evaluation_table(const SavedModelRecord& record);
// The table at the end: evaluation, throughput, memory, time by phase.
std::string summary(const SummaryRecord& record);

// Prints a run's progress on the main rank, nothing on the others. One live bar on a terminal (the agent says
// so by TRAINER_CONSOLE=terminal, and gives the width in COLUMNS), else a line a record. Other lines,
// warnings too, stand above the bar: the agent keeps it last.
class Console {
 public:
  Console(spec::Progress progress, Plan plan, bool is_main);
  void step(const StepRecord& record);
  // Moves the bar on between two records; cheap enough for every step.
  void tick(int64_t step);
  void evaluation(const EvaluationRecord& record);
  void finish(const SummaryRecord& record);

 private:
  void draw();

  Plan plan_;
  bool is_main_, bar_, lines_;
  int64_t columns_;
  StepRecord shown_;
  // Of the first record, where the estimate of the time left begins: warm-up is before it.
  int64_t first_step_ = 0;
  double first_time_s_ = 0;
  double seconds_a_step_, drawn_s_ = 0;
  // The same of the first tick, for an estimate before there are two records.
  int64_t first_tick_ = 0;
  double first_tick_s_ = 0;
  double tick_seconds_a_step_ = kNotMeasured;
};

}  // namespace trainer::metrics
