#include "data/loader.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/error.h"

namespace trainer::data {

LoaderOptions LoaderOptions::for_training(const Job& job) {
  const spec::JobSpec& spec = job.spec;
  LoaderOptions options;
  options.batch = {spec.train.batch_size, spec.train.batch_tokens, spec.train.gradient_accumulation,
                   job.world.size};
  options.rank = job.world.rank;
  options.seed = static_cast<uint64_t>(spec.job.seed);
  options.shuffle = spec.data.shuffle;
  options.num_workers = spec.data.num_workers;
  options.prefetch = spec.data.prefetch;
  options.pin_memory = spec.data.pin_memory && job.cuda;
  return options;
}

LoaderOptions LoaderOptions::for_evaluation(const Job& job) {
  const spec::Evaluation& evaluation = job.spec.evaluation;
  LoaderOptions options = for_training(job);
  if (evaluation.batch_size > 0) {
    options.batch.batch_size = evaluation.batch_size;
    options.batch.batch_tokens = 0;
  }
  options.batch.accumulation = 1;
  options.shuffle = false;
  options.samples = evaluation.samples;
  return options;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options), num_samples_(dataset_->size()) {
  if (options_.samples > 0) num_samples_ = std::min(options_.samples, num_samples_);
  const int64_t budget = options_.batch.batch_tokens;
  if (budget == 0) return;
  lengths_ = dataset_->lengths(at::get_num_threads());
  const auto longest = std::max_element(lengths_.begin(), lengths_.end());
  if (*longest > budget) {
    fail<DataError>(
        "{}: {} tokens, expected at most {} (train.batch_tokens)\nhint: raise it, or lower data.max_length",
        dataset_->where(longest - lengths_.begin()), *longest, budget);
  }
}

BatchPlan Loader::plan(int64_t epoch, int64_t position) const {
  const Sampler order(num_samples_, options_.seed, epoch, options_.shuffle);
  return {order, position, options_.batch, [this](int64_t i) {
            const int64_t sample = this->sample(i);
            return lengths_.empty() ? dataset_->cost(sample) : lengths_[static_cast<size_t>(sample)];
          }};
}

int64_t Loader::sample(int64_t i) const {
  if (num_samples_ == dataset_->size()) return i;
  return static_cast<int64_t>(static_cast<__int128>(i) * dataset_->size() / num_samples_);
}

int64_t Loader::num_steps(int64_t epoch, int64_t position) const {
  return plan(epoch, position).num_steps();
}

int64_t Loader::total_steps(const spec::Train& train) const {
  if (train.steps) return *train.steps;
  const int64_t epochs = train.epochs.value_or(0);
  if (train.batch_tokens == 0) return epochs * num_steps(0);
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) steps += num_steps(epoch);
  return steps;
}

void Loader::seek(int64_t epoch, int64_t position) {
  prefetcher_.reset();
  plan_.reset();
  epoch_ = epoch;
  position_ = position;
  step_ = micro_ = 0;
}

Prefetcher<MicroBatch>::Task Loader::make_task() {
  if (!plan_) plan_ = std::make_shared<const BatchPlan>(plan(epoch_, position_));
  if (step_ == plan_->num_steps()) {
    plan_ = std::make_shared<const BatchPlan>(plan(++epoch_, 0));
    step_ = 0;
  }
  const int64_t epoch = epoch_, step = step_, micro = micro_;
  if (++micro_ == options_.batch.accumulation) {
    micro_ = 0;
    ++step_;
  }
  return [this, plan = plan_, epoch, step, micro] {
    std::vector<std::vector<int64_t>> shards = plan->shards(step);
    for (std::vector<int64_t>& samples : shards) {
      for (int64_t& i : samples) i = sample(i);
    }
    const auto shard = static_cast<size_t>(micro * options_.batch.world + options_.rank);
    MicroBatch result;
    result.batch = dataset_->batch(shards[shard], options_.seed, epoch, options_.pin_memory);
    for (const std::vector<int64_t>& samples : shards) {
      for (const int64_t sample : samples) {
        result.step_targets += dataset_->targets(sample, options_.seed, epoch);
      }
    }
    result.epoch = epoch;
    result.position = plan->step_end(step);
    result.step_samples = plan->step_size(step);
    result.last_of_step = micro + 1 == options_.batch.accumulation;
    result.last_of_epoch = result.last_of_step && step + 1 == plan->num_steps();
    return result;
  };
}

MicroBatch Loader::next() {
  if (!prefetcher_) {
    prefetcher_ = std::make_unique<Prefetcher<MicroBatch>>([this] { return make_task(); },
                                                           options_.num_workers, options_.prefetch);
  }
  return prefetcher_->next();
}

}  // namespace trainer::data
