#include "train/skipped_steps.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "core/error.h"

using Catch::Matchers::Message;
using trainer::train::SkippedSteps;

namespace {

const c10::Device kCpu(c10::kCPU);
const at::Tensor kScale = at::ones({});

// Feeds one step; what check() says of it.
int64_t take(SkippedSteps& skipped, int64_t step, double found_inf) {
  skipped.add(at::scalar_tensor(found_inf, at::kFloat));
  return skipped.check(step, kScale);
}

}  // namespace

TEST_CASE("skipped steps are counted, and a good step ends a row of them") {
  trainer::spec::Train options;
  options.max_skipped_steps = 2;
  SkippedSteps skipped(options, kCpu, /*is_main=*/false);
  CHECK(take(skipped, 1, 0) == 0);
  CHECK(take(skipped, 2, 1) == 1);
  CHECK(take(skipped, 3, 0) == 1);
  CHECK(take(skipped, 4, 1) == 2);
  CHECK_THROWS_MATCHES(take(skipped, 5, 1), trainer::NumericError,
                       Message("step 5: gradients were inf or NaN, 2 steps in a row (train.max_skipped_steps "
                               "2); the weights are those "
                               "of step 3; hint: lower optimizer.lr"));
}

TEST_CASE(
    "abort ends the job at the first skipped step, but not in fp16, where the loss scale must find its "
    "value") {
  trainer::spec::Train options;
  options.on_nonfinite = trainer::spec::NonFinite::kAbort;
  SkippedSteps fp32(options, kCpu, false);
  CHECK_THROWS_MATCHES(take(fp32, 7, 1), trainer::NumericError,
                       Message("step 7: gradients were inf or NaN, 1 step in a row (train.on_nonfinite is "
                               "abort); the weights are those "
                               "of step 6; hint: lower optimizer.lr"));
  options.precision = trainer::spec::Precision::kFp16;
  SkippedSteps fp16(options, kCpu, false);
  CHECK(take(fp16, 7, 1) == 1);
}

TEST_CASE("once steps skipped in a row are too many no later step is taken, however late the host looks") {
  trainer::spec::Train options;
  options.max_skipped_steps = 2;
  SkippedSteps skipped(options, kCpu, false);
  const at::Tensor good = at::zeros({}), bad = at::ones({});
  CHECK(skipped.add(bad).item<float>() == 1);
  CHECK(skipped.add(bad).item<float>() == 1);
  CHECK(skipped.add(good).item<float>() == 1);
  CHECK_THROWS_AS(skipped.check(3, kScale), trainer::NumericError);
}
