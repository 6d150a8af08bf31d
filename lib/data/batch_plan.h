#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/sampler.h"

namespace trainer::data {

struct BatchOptions {
  int64_t batch_size = 16;   // samples of a shard: one rank's micro-batch
  int64_t batch_tokens = 0;  // > 0: tokens of a shard; batch_size is then its sample limit
  int64_t accumulation = 1;  // micro-batches a step
  int64_t world = 1;         // ranks
  int64_t num_shards() const { return accumulation * world; }
};

// One epoch cut into optimizer steps, each a run of consecutive samples of the order, dealt to shards: shard
// s is micro-batch s / world of rank s % world. Every sample is in exactly one shard; every rank has all
// steps and micro-batches, though its shard may be empty. The samples of a step depend only on the number of
// shards, not on how many of them are ranks. Only the last step of an epoch may be smaller.
//
// Within a step, samples go to shards by longest-processing-time-first (Graham 1969): ranks wait for the
// slowest, so costs should be even. By sample count, numbers of samples in shards differ by at most one.
class BatchPlan {
 public:
  // Tokens of a sample, or anything proportional; when batch_tokens > 0 it must be exact, and at most that.
  using Cost = std::function<int64_t(int64_t sample)>;

  // Plans positions begin .. n-1 of the order: an epoch resumes wherever it was left, with any number of
  // shards. With batch_tokens, visits every sample once.
  BatchPlan(const Sampler& order, int64_t begin, const BatchOptions& options, Cost cost);

  int64_t num_steps() const { return num_steps_; }
  // Samples of a step on all ranks and micro-batches.
  int64_t step_size(int64_t step) const { return step_begin(step + 1) - step_begin(step); }
  // First position that comes after a step.
  int64_t step_end(int64_t step) const { return step_begin(step + 1); }
  // Samples of each shard of a step, in the epoch's order within a shard.
  std::vector<std::vector<int64_t>> shards(int64_t step) const;

 private:
  int64_t step_begin(int64_t step) const;

  Sampler order_;
  int64_t begin_;
  BatchOptions options_;
  Cost cost_;
  int64_t num_steps_;
  std::vector<int64_t> starts_;  // by tokens only: first position of each step, then the number of samples
};

}  // namespace trainer::data
