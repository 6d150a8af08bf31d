#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/descriptor.h"
#include "metrics/evaluation.h"
#include "metrics/meters.h"
#include "spec/job_spec.h"

namespace trainer::metrics {

// The records of a run. Main rank only; numbers are the whole job's unless a name says else. NaN: not
// measured, null in JSON.

// One logged step. Rates are of the steps since the last record; so is the loss, a mean over their targets.
struct StepRecord {
  int64_t step = 0;   // optimizer steps done, from 1
  double epoch = 0;   // with a fraction
  double time_s = 0;  // since training began
  double loss = 0;
  double grad_norm = 0;  // of this step, before clipping
  double lr = 0;
  double loss_scale = 1;
  Rates rates;
  double mfu = kNotMeasured;  // fraction of the devices' peak
  int64_t memory_bytes = 0;   // peak of this rank: of the device, or resident on a CPU
  int64_t skipped_steps = 0;  // so far, for inf or NaN gradients
};

struct EvaluationRecord {
  int64_t step = 0;
  double epoch = 0;
  double time_s = 0;
  double seconds = 0;  // that it took
  int64_t samples = 0;
  Evaluation found;
  bool best = false;  // so far
};

struct SummaryRecord {
  int64_t steps = 0;  // done, those before a resume included; so is all below
  double epochs = 0;
  double time_s = 0;
  Rates rates;  // over training time: without evaluation and checkpoints
  double mfu = kNotMeasured;
  int64_t memory_bytes = 0;
  int64_t skipped_steps = 0;
  PhaseTimes phases;
  EvaluationRecord last;  // samples 0: no evaluation
  EvaluationRecord best;
};

// Of a saved model, by itself.
struct SavedModelRecord {
  std::string model;  // directory
  std::string data;
  int64_t samples = 0;
  double seconds = 0;  // that it took
  Evaluation found;
};

// One line of metrics.jsonl, without the newline. Every line has "kind" and "unix_s", the time of day that it
// was made.
std::string to_json(const StepRecord& record, double unix_s);
std::string to_json(const EvaluationRecord& record, double unix_s);
std::string to_json(const SummaryRecord& record, double unix_s);
std::string to_json(const SavedModelRecord& record, double unix_s);

// Appends whole lines to a file: each is one write(2) on an O_APPEND descriptor, so a reader never sees a
// part of one and a killed process leaves none. When the disk is full the part is cut off again and one
// warning is printed; training goes on.
class JsonlFile {
 public:
  // Keeps of the lines that are there those within the first `keep_bytes`. Throws CheckpointError when the file can't be
  // opened.
  JsonlFile(const std::filesystem::path& path, int64_t keep_bytes);
  int64_t size_bytes() const;
  void write_line(std::string_view line);
  template <class Record>
  void write(const Record& record) {
    write_line(to_json(record, unix_time_s()));
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  bool warned_ = false;
};

}  // namespace trainer::metrics
