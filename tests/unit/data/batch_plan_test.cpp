#include "data/batch_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/mix64.h"

using namespace trainer::data;
using trainer::mix64;

namespace {

int64_t tokens_of(int64_t sample) {
  return 5 + static_cast<int64_t>(mix64(static_cast<uint64_t>(sample)) % 60);
}

BatchPlan make(int64_t n, const BatchOptions& options, int64_t begin = 0, int64_t epoch = 0) {
  return {Sampler(n, 42, epoch, true), begin, options, tokens_of};
}

std::vector<std::set<int64_t>> samples_by_step(const BatchPlan& plan) {
  std::vector<std::set<int64_t>> steps;
  for (int64_t step = 0; step < plan.num_steps(); ++step) {
    steps.emplace_back();
    for (const auto& shard : plan.shards(step)) steps.back().insert(shard.begin(), shard.end());
  }
  return steps;
}

// All that holds of every plan.
void check_plan(const BatchPlan& plan, int64_t n, const BatchOptions& options, int64_t begin) {
  const Sampler order(n, 42, 0, true);
  int64_t position = begin;
  for (int64_t step = 0; step < plan.num_steps(); ++step) {
    const std::vector<std::vector<int64_t>> shards = plan.shards(step);
    REQUIRE(static_cast<int64_t>(shards.size()) == options.num_shards());
    std::vector<int64_t> got, expected;
    size_t least = SIZE_MAX, most = 0;
    for (const auto& shard : shards) {
      int64_t tokens = 0;
      for (const int64_t sample : shard) tokens += tokens_of(sample);
      got.insert(got.end(), shard.begin(), shard.end());
      least = std::min(least, shard.size());
      most = std::max(most, shard.size());
      if (options.batch_tokens > 0) REQUIRE(tokens <= options.batch_tokens);
    }
    REQUIRE(static_cast<int64_t>(most) <= options.batch_size);
    if (options.batch_tokens == 0) REQUIRE(most - least <= 1);
    // The step's samples are the next ones of the order: so every sample is used exactly once.
    for (int64_t i = 0; i < plan.step_size(step); ++i) expected.push_back(order[position++]);
    std::sort(got.begin(), got.end());
    std::sort(expected.begin(), expected.end());
    REQUIRE(got == expected);
    REQUIRE(!got.empty());
    REQUIRE(plan.step_end(step) == position);
  }
  REQUIRE(position == n);
}

}  // namespace

TEST_CASE("every sample is in one shard of one step; shards are even; only the last step is smaller") {
  for (const int64_t n : {1, 2, 7, 16, 97, 256, 1001}) {
    for (const int64_t batch_size : {1, 3, 16}) {
      for (const int64_t accumulation : {1, 2, 5}) {
        for (const int64_t world : {1, 2, 3, 8}) {
          for (const int64_t begin : {int64_t{0}, n / 3}) {
            const BatchOptions options = {batch_size, 0, accumulation, world};
            const BatchPlan plan = make(n, options, begin);
            check_plan(plan, n, options, begin);
            for (int64_t step = 0; step + 1 < plan.num_steps(); ++step) {
              REQUIRE(plan.step_size(step) == batch_size * accumulation * world);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("by token budget, every shard is within it, and steps are nearly full") {
  for (const int64_t n : {1, 7, 256, 1001}) {
    for (const int64_t batch_size : {3, 1000}) {
      for (const int64_t batch_tokens : {64, 100, 1000}) {
        for (const int64_t world : {1, 2, 4}) {
          for (const int64_t begin : {int64_t{0}, n / 3}) {
            const BatchOptions options = {batch_size, batch_tokens, 2, world};
            const BatchPlan plan = make(n, options, begin);
            check_plan(plan, n, options, begin);
            if (batch_size < 1000 || batch_tokens < 1000) continue;
            for (int64_t step = 0; step + 1 < plan.num_steps(); ++step) {
              int64_t tokens = 0;
              for (const auto& shard : plan.shards(step)) {
                for (const int64_t sample : shard) tokens += tokens_of(sample);
              }
              REQUIRE(tokens > (batch_tokens - 64) * options.num_shards());
            }
          }
        }
      }
    }
  }
}

TEST_CASE("steps have the same samples for any world size and accumulation of equal product") {
  for (const int64_t batch_tokens : {0, 200}) {
    const auto expected = samples_by_step(make(1001, {4, batch_tokens, 12, 1}));
    for (const auto& [accumulation, world] : {std::pair{6, 2}, {4, 3}, {3, 4}, {1, 12}}) {
      CHECK(samples_by_step(make(1001, {4, batch_tokens, accumulation, world})) == expected);
    }
  }
}

TEST_CASE("a plan from the end of a step is the rest of the plan") {
  for (const int64_t batch_tokens : {0, 200}) {
    const BatchOptions options = {4, batch_tokens, 2, 2};
    const BatchPlan whole = make(333, options);
    for (int64_t step = 0; step < whole.num_steps(); ++step) {
      const BatchPlan rest = make(333, options, whole.step_end(step));
      REQUIRE(rest.num_steps() == whole.num_steps() - step - 1);
      for (int64_t s = 0; s < rest.num_steps(); ++s) REQUIRE(rest.shards(s) == whole.shards(step + 1 + s));
    }
  }
}

TEST_CASE("shards of a step have nearly the same cost") {
  double dealt = 0, worst = 0, mean = 0;
  const BatchOptions options = {16, 0, 1, 4};
  const BatchPlan plan = make(64 * 50, options);
  for (int64_t step = 0; step < plan.num_steps(); ++step) {
    std::vector<double> loads;
    for (const auto& shard : plan.shards(step)) {
      loads.push_back(0);
      for (const int64_t sample : shard) loads.back() += static_cast<double>(tokens_of(sample));
    }
    dealt += *std::max_element(loads.begin(), loads.end());
    for (const double load : loads) mean += load / 4;
    // As consecutive runs would be.
    double run = 0;
    const Sampler order(64 * 50, 42, 0, true);
    for (int64_t s = 0; s < 4; ++s) {
      double load = 0;
      for (int64_t i = 0; i < 16; ++i) load += static_cast<double>(tokens_of(order[step * 64 + s * 16 + i]));
      run = std::max(run, load);
    }
    worst += run;
  }
  CHECK(dealt < 1.01 * mean);
  CHECK(worst > 1.05 * mean);
}
