#include "data/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/math.h"

namespace trainer::data {
namespace {

// Fills shard after shard with consecutive samples. Says which shard the next sample is in, and when all are
// full.
class ShardFiller {
 public:
  explicit ShardFiller(const BatchOptions& options) : options_(options) {}
  // False when the sample fits into none of the shards left: it begins the next step.
  bool add(int64_t tokens) {
    if (tokens_ + tokens > options_.batch_tokens || count_ == options_.batch_size) {
      ++shard_;
      tokens_ = count_ = 0;
    }
    tokens_ += tokens;
    ++count_;
    return shard_ < options_.num_shards();
  }
  int64_t shard() const { return shard_; }

 private:
  BatchOptions options_;
  int64_t shard_ = 0, tokens_ = 0, count_ = 0;
};

// Longest processing time first: each sample to the lightest shard that has room. `capacity(s)` samples fit
// into shard s. Nothing when a shard would exceed `max_cost` (0: no limit).
template <class Capacity>
std::optional<std::vector<int64_t>> deal(const std::vector<int64_t>& costs, int64_t num_shards,
                                         Capacity capacity, int64_t max_cost) {
  std::vector<int64_t> order(costs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return costs[static_cast<size_t>(a)] > costs[static_cast<size_t>(b)];
  });
  std::vector<int64_t> load(static_cast<size_t>(num_shards)), count(static_cast<size_t>(num_shards));
  std::vector<int64_t> shard_of(costs.size());
  for (const int64_t i : order) {
    size_t lightest = load.size();
    for (size_t s = 0; s < load.size(); ++s) {
      if (count[s] < capacity(static_cast<int64_t>(s)) &&
          (lightest == load.size() || load[s] < load[lightest])) {
        lightest = s;
      }
    }
    if (lightest == load.size()) return std::nullopt;
    load[lightest] += costs[static_cast<size_t>(i)];
    if (max_cost > 0 && load[lightest] > max_cost) return std::nullopt;
    ++count[lightest];
    shard_of[static_cast<size_t>(i)] = static_cast<int64_t>(lightest);
  }
  return shard_of;
}

}  // namespace

BatchPlan::BatchPlan(const Sampler& order, int64_t begin, const BatchOptions& options, Cost cost)
    : order_(order), begin_(begin), options_(options), cost_(std::move(cost)) {
  if (options_.batch_tokens == 0) {
    const int64_t step = options_.batch_size * options_.num_shards();
    num_steps_ = ceil_div(order_.size() - begin_, step);
    return;
  }
  ShardFiller filler(options_);
  for (int64_t i = begin_; i < order_.size(); ++i) {
    const int64_t tokens = cost_(order_[i]);
    if (i == begin_ || !filler.add(tokens)) {
      starts_.push_back(i);
      filler = ShardFiller(options_);
      filler.add(tokens);
    }
  }
  num_steps_ = static_cast<int64_t>(starts_.size());
  starts_.push_back(order_.size());
}

int64_t BatchPlan::step_begin(int64_t step) const {
  if (!starts_.empty()) return starts_[static_cast<size_t>(step)];
  return std::min(order_.size(), begin_ + step * options_.batch_size * options_.num_shards());
}

std::vector<std::vector<int64_t>> BatchPlan::shards(int64_t step) const {
  const int64_t n = step_size(step);
  std::vector<int64_t> samples(static_cast<size_t>(n)), costs(static_cast<size_t>(n));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = order_[step_begin(step) + static_cast<int64_t>(i)];
    costs[i] = cost_ ? cost_(samples[i]) : 1;
  }
  const int64_t num_shards = options_.num_shards();
  std::optional<std::vector<int64_t>> shard_of;
  if (options_.batch_tokens > 0) {
    shard_of = deal(
        costs, num_shards, [&](int64_t) { return options_.batch_size; }, options_.batch_tokens);
    if (!shard_of) {  // rare: what filled the shards one by one always fits
      ShardFiller filler(options_);
      shard_of.emplace();
      for (const int64_t tokens : costs) {
        filler.add(tokens);
        shard_of->push_back(filler.shard());
      }
    }
  } else {
    shard_of = deal(
        costs, num_shards, [&](int64_t s) { return n / num_shards + (s < n % num_shards ? 1 : 0); }, 0);
  }
  std::vector<std::vector<int64_t>> shards(static_cast<size_t>(num_shards));
  for (size_t i = 0; i < samples.size(); ++i)
    shards[static_cast<size_t>((*shard_of)[i])].push_back(samples[i]);
  return shards;
}

}  // namespace trainer::data
