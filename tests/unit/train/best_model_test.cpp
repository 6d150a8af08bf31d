#include "train/best_model.h"

#include <catch2/catch.hpp>
#include <limits>

using trainer::spec::Metric;

namespace {

trainer::metrics::EvaluationRecord evaluation(Metric metric, double value) {
  trainer::metrics::EvaluationRecord record;
  record.samples = 1;
  record.found.values[metric] = value;
  return record;
}

trainer::Job job_with(Metric best, int64_t patience) {
  trainer::Job job;
  job.spec.evaluation.best = best;
  job.spec.evaluation.early_stop_patience = patience;
  return job;
}

}  // namespace

TEST_CASE("the best is the highest of a score, the first of equals, and never an undefined one") {
  trainer::train::BestModel best(job_with(Metric::kF1, 0));
  CHECK_FALSE(best.consider(evaluation(Metric::kF1, std::numeric_limits<double>::quiet_NaN())));
  CHECK(best.consider(evaluation(Metric::kF1, 0.5)));
  CHECK_FALSE(best.consider(evaluation(Metric::kF1, 0.5)));
  CHECK(best.consider(evaluation(Metric::kF1, 0.6)));
  CHECK_FALSE(best.consider(evaluation(Metric::kF1, 0.1)));
  CHECK(best.best().found.values.at(Metric::kF1) == 0.6);
  CHECK(best.last().found.values.at(Metric::kF1) == 0.1);
  CHECK_FALSE(best.out_of_patience());
}

TEST_CASE("the best is the lowest of a loss, and patience counts evaluations since then") {
  trainer::train::BestModel best(job_with(Metric::kLoss, 2));
  CHECK(best.consider(evaluation(Metric::kLoss, 0.5)));
  CHECK_FALSE(best.consider(evaluation(Metric::kLoss, 0.7)));
  CHECK_FALSE(best.out_of_patience());
  CHECK(best.consider(evaluation(Metric::kLoss, 0.4)));
  CHECK_FALSE(best.consider(evaluation(Metric::kLoss, 0.4)));
  CHECK_FALSE(best.consider(evaluation(Metric::kLoss, 0.9)));
  CHECK(best.out_of_patience());
}

TEST_CASE("without a metric there is no best") {
  trainer::train::BestModel best{trainer::Job()};
  CHECK_FALSE(best.consider(evaluation(Metric::kLoss, 0.5)));
  CHECK(best.best().samples == 0);
}
