#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "data/batch_plan.h"
#include "data/dataset.h"
#include "data/prefetcher.h"
#include "job/job.h"

namespace trainer::data {

struct LoaderOptions {
  BatchOptions batch;
  int64_t rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t samples = 0;      // that are used, spread evenly over the dataset; 0: all
  int64_t num_workers = 1;  // threads; 0: next() makes the batch itself
  int64_t prefetch = 4;     // micro-batches ahead
  bool pin_memory = false;

  static LoaderOptions for_training(const Job& job);
  // One micro-batch a step, in the file's order; of evaluation.batch_size samples, else by tokens as in
  // training.
  static LoaderOptions for_evaluation(const Job& job);
};

// One rank's micro-batch, and its place.
struct MicroBatch {
  Batch batch;
  int64_t epoch = 0;
  int64_t position = 0;  // samples of the epoch that are used once this step is done: where to seek to resume
  int64_t step_samples = 0;  // of all ranks and micro-batches of this step
  int64_t step_targets = 0;  // values in the loss of all these: its denominator
  bool last_of_step = false;
  bool last_of_epoch = false;
};

// Feeds one rank: micro-batches of epoch after epoch without end, made ahead by threads. What comes out is a
// function of the dataset, the options and the position alone. Knows no process group: every rank computes
// the same plan.
class Loader {
 public:
  // By tokens, asks the dataset for all lengths; throws DataError naming a sample that is larger than
  // batch_tokens.
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  // The first step of what next() gives begins at this sample of this epoch's order.
  void seek(int64_t epoch, int64_t position);
  // Steps of an epoch from a position on. All epochs have equally many unless batches are made by tokens.
  int64_t num_steps(int64_t epoch, int64_t position = 0) const;
  // Optimizer steps of the whole job.
  int64_t total_steps(const spec::Train& train) const;
  // Throws what making the batch threw.
  MicroBatch next();
  int64_t num_samples() const { return num_samples_; }

 private:
  BatchPlan plan(int64_t epoch, int64_t position) const;
  // What sample i of those that are used is in the dataset.
  int64_t sample(int64_t i) const;
  Prefetcher<MicroBatch>::Task make_task();

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  int64_t num_samples_;
  std::vector<int32_t> lengths_;  // by tokens only
  // The place of the next task.
  int64_t epoch_ = 0, position_ = 0, step_ = 0, micro_ = 0;
  std::shared_ptr<const BatchPlan> plan_;
  std::unique_ptr<Prefetcher<MicroBatch>> prefetcher_;  // last: its threads use all the above
};

}  // namespace trainer::data
