#include "metrics/evaluation.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "spec/enums.h"

using Catch::Matchers::Message;
using trainer::metrics::ClassificationMetrics;
using trainer::spec::Metric;
using trainer::spec::ProblemType;

namespace {

using Json = nlohmann::json;

at::Tensor matrix(const Json& rows) {
  std::vector<double> values;
  for (const Json& row : rows) {
    for (const Json& value : row) values.push_back(value.get<double>());
  }
  const auto n = static_cast<int64_t>(rows.size());
  return torch::tensor(values, at::kDouble).view({n, -1}).to(at::kFloat);
}

ProblemType problem_of(const Json& test) {
  if (test["problem"] == "regression") return ProblemType::kRegression;
  return test["problem"] == "multi_label" ? ProblemType::kMultiLabel : ProblemType::kSingleLabel;
}

std::vector<Metric> metrics_of(ProblemType problem) {
  std::vector<Metric> all;
  for (const Metric metric : {Metric::kLoss, Metric::kAccuracy, Metric::kF1, Metric::kMcc, Metric::kPearson,
                              Metric::kSpearman, Metric::kMse}) {
    if (trainer::metrics::is_defined(metric, problem)) all.push_back(metric);
  }
  return all;
}

// Splits the samples in batches of `batch` and these over `ranks` in turn, then sums as an all-reduce would.
std::map<Metric, double> evaluate(ProblemType problem, const at::Tensor& logits, const at::Tensor& labels,
                                  int64_t batch, int64_t ranks) {
  std::vector<ClassificationMetrics> of_rank;  // a copy would share its counts
  for (int64_t r = 0; r < ranks; ++r) of_rank.emplace_back(problem, logits.size(1), metrics_of(problem));
  for (int64_t begin = 0, i = 0; begin < logits.size(0); begin += batch, ++i) {
    const int64_t end = std::min(begin + batch, logits.size(0));
    of_rank[static_cast<size_t>(i % ranks)].add(
        {logits.slice(0, begin, end),
         labels.slice(0, begin, end),
         {},
         torch::scalar_tensor(0.5 * static_cast<double>(end - begin))});
  }
  std::vector<at::Tensor> rows;
  for (ClassificationMetrics& rank : of_rank) {
    rows.push_back(rank.rows());
    if (&rank != &of_rank[0]) of_rank[0].counts() += rank.counts();
  }
  return of_rank[0].compute(torch::cat(rows)).values;
}

}  // namespace

TEST_CASE("metrics equal scikit-learn's and scipy's, however the samples are split") {
  const Json cases = Json::parse(trainer::read_file(TEST_DATA "/evaluation_cases.json"));
  REQUIRE(cases.size() > 20);
  for (const Json& test : cases) {
    const ProblemType problem = problem_of(test);
    const at::Tensor logits = matrix(test["logits"]);
    at::Tensor labels;
    if (problem == ProblemType::kSingleLabel) {
      labels = torch::tensor(test["labels"].get<std::vector<int64_t>>());
    } else {
      labels = matrix(test["labels"]);
    }
    if (problem == ProblemType::kRegression && labels.size(1) == 1) labels = labels.squeeze(1);
    for (const auto& [batch, ranks] : {std::pair{1000, 1}, {7, 1}, {4, 3}, {1000, 2}}) {
      INFO(test["name"] << ", batches of " << batch << ", ranks " << ranks);
      const auto values = evaluate(problem, logits, labels, batch, ranks);
      REQUIRE(values.size() == test["expected"].size() + 1);
      CHECK(values.at(Metric::kLoss) ==
            Approx(0.5 * static_cast<double>(logits.size(0)) / static_cast<double>(labels.numel()))
                .epsilon(1e-12));
      for (const auto& [metric, value] : values) {
        if (metric == Metric::kLoss) continue;
        const Json& expected = test["expected"].at(trainer::spec::to_string(metric));
        INFO(trainer::spec::to_string(metric));
        if (expected.is_null()) {
          CHECK(std::isnan(value));
        } else {
          CHECK(std::abs(value - expected.get<double>()) < 1e-9);
        }
      }
    }
  }
}

TEST_CASE("metrics of no samples are NaN, and an empty batch changes nothing") {
  for (const ProblemType problem :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression}) {
    ClassificationMetrics metrics(problem, 3, metrics_of(problem));
    metrics.add({torch::zeros({0, 3}), torch::zeros({0, 3}), {}, torch::scalar_tensor(0.0)});
    CHECK(metrics.counts().sum().item<double>() == 0);
    CHECK(metrics.rows().sizes() == at::IntArrayRef({0, 6}));
    for (const auto& [metric, value] : metrics.compute(metrics.rows()).values) CHECK(std::isnan(value));
  }
}

TEST_CASE("predictions that are NaN give NaN correlations") {
  const at::Tensor logits = torch::tensor({1.0F, std::nanf(""), 3.0F, 4.0F}).view({4, 1});
  const auto values = evaluate(ProblemType::kRegression, logits, torch::arange(4.0), 4, 1);
  for (const Metric metric : {Metric::kMse, Metric::kPearson, Metric::kSpearman})
    CHECK(std::isnan(values.at(metric)));
}

TEST_CASE("rows are kept only for a correlation") {
  const std::vector<std::pair<Metric, int64_t>> kept = {
      {Metric::kMse, 0}, {Metric::kSpearman, 5}, {Metric::kPearson, 5}};
  for (const auto& [metric, expected] : kept) {
    ClassificationMetrics metrics(ProblemType::kRegression, 1, {metric});
    metrics.add({torch::randn({5, 1}), torch::randn({5}), {}, torch::scalar_tensor(1.0)});
    CHECK(metrics.rows().size(0) == expected);
  }
}

TEST_CASE("a metric that the problem does not define is refused") {
  CHECK_THROWS_MATCHES(
      ClassificationMetrics(ProblemType::kRegression, 1, {Metric::kLoss, Metric::kF1}), trainer::SpecError,
      Message("evaluation.metrics: f1 is not defined for this model.problem_type; expected of: loss, "
              "mse, pearson, spearman"));
  CHECK_THROWS_MATCHES(
      ClassificationMetrics(ProblemType::kMultiLabel, 2, {Metric::kSpearman}), trainer::SpecError,
      Message("evaluation.metrics: spearman is not defined for this model.problem_type; expected of: "
              "loss, accuracy, f1, mcc"));
}

TEST_CASE("a smaller loss and error are better, a larger score, a calibration nearer to 1") {
  using trainer::metrics::is_better;
  for (const Metric metric : {Metric::kLoss, Metric::kMse, Metric::kPerplexity, Metric::kBitsPerByte,
                              Metric::kLogLoss, Metric::kNormalizedEntropy}) {
    CHECK(is_better(metric, 0.1, 0.2));
    CHECK_FALSE(is_better(metric, 0.2, 0.1));
  }
  for (const Metric metric : {Metric::kAccuracy, Metric::kF1, Metric::kMcc, Metric::kPearson,
                              Metric::kSpearman, Metric::kAuc, Metric::kGroupedAuc}) {
    CHECK(is_better(metric, 0.2, 0.1));
    CHECK_FALSE(is_better(metric, 0.1, 0.2));
  }
  CHECK(is_better(Metric::kCalibration, 0.9, 1.2));
  CHECK(is_better(Metric::kCalibration, 1.1, 0.8));
  CHECK_FALSE(is_better(Metric::kCalibration, 0.8, 1.1));
  for (const Metric metric : {Metric::kLoss, Metric::kAuc, Metric::kCalibration}) {
    CHECK_FALSE(is_better(metric, std::nan(""), 0.5));
    CHECK_FALSE(is_better(metric, 0.5, 0.5));
  }
}
