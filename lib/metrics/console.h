#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "job/job.h"
#include "metrics/jsonl.h"

namespace trainer::metrics {

// Lines "  label   value" with the values aligned, under a title line.
std::string table(std::string_view title, const std::vector<std::pair<std::string, std::string>>& rows);

// 75 s as "1:15", 3675 s as "1:01:15"; "?" when not finite.
std::string duration(double seconds);
// 4 significant digits and an SI prefix: si(1.25e12, "FLOP/s") is "1.25 TFLOP/s".
std::string si(double value, std::string_view unit);
// Binary: 1.5 GiB.
std::string bytes(int64_t value);

// What a progress line says beside the record.
struct Plan {
  int64_t total_steps = 0;
  double total_epochs = 0;
};

// "step 120/690  epoch 0.52/3  loss 0.5312  lr 4.6e-05  38.4 samples/s  2035 tokens/s  4:12 left"
std::string progress_line(const StepRecord& record, const Plan& plan, double seconds_left);
// The same behind a bar, cut at a field so that it fits `columns`.
std::string progress_bar(const StepRecord& record, const Plan& plan, double seconds_left, int columns);
// "evaluation  step 230  epoch 1  loss 0.4521  accuracy 0.8431  f1 0.8876  (408 samples in 4.1 s)  best so
// far"
std::string evaluation_line(const EvaluationRecord& record);
// The table at the end: evaluation, throughput, memory, time by phase.
std::string summary(const SummaryRecord& record);

// Prints the progress of a run, on the main rank; a quiet one elsewhere. A bar on a terminal: the agent says
// so by TRAINER_CONSOLE=terminal and gives the width in COLUMNS. Else plain lines.
class Console {
 public:
  Console(spec::Progress progress, Plan plan, bool is_main);
  void step(const StepRecord& record);
  // Moves the bar between two records; cheap enough for every step.
  void tick(int64_t step);
  void evaluation(const EvaluationRecord& record);
  void finish(const SummaryRecord& record);

 private:
  double seconds_left(int64_t step) const;
  void draw(const StepRecord& record);

  spec::Progress progress_;
  Plan plan_;
  int columns_;
  StepRecord last_;
  int64_t first_step_ = -1;
  double first_time_s_ = 0;
  double drawn_s_ = 0;
};

}  // namespace trainer::metrics
