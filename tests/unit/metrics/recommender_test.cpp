#include "metrics/recommender.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "metrics/auc.h"
#include "spec/enums.h"

using Catch::Matchers::Message;
using trainer::metrics::Evaluation;
using trainer::metrics::RecommenderMetrics;
using trainer::spec::Metric;
using Json = nlohmann::json;

namespace {

const std::vector<Metric> kAll = {Metric::kLoss,        Metric::kLogLoss,    Metric::kNormalizedEntropy,
                                  Metric::kCalibration, Metric::kGroupedAuc, Metric::kAuc};

struct Rows {
  at::Tensor logits, labels, groups;
};

Rows rows_of(const Json& test) {
  return {torch::tensor(test["logits"].get<std::vector<double>>(), at::kDouble).to(at::kFloat),
          torch::tensor(test["labels"].get<std::vector<int64_t>>()).to(at::kFloat),
          torch::tensor(test["groups"].get<std::vector<int64_t>>())};
}

// n rows whose logits know a little of the label.
Rows random_rows(int64_t n, int64_t num_groups) {
  const at::Generator random = at::detail::createCPUGenerator(9);
  const at::Tensor labels = at::rand({n}, random).lt(0.3).to(at::kFloat);
  return {at::randn({n}, random) + labels, labels, at::randint(0, num_groups, {n}, random, at::kLong)};
}

// Rank r has the rows from begins[r] to the next rank's, in batches of `batch`; sums and gathers as the collectives would.
Evaluation evaluate(const Rows& rows, const std::vector<Metric>& wanted, const std::vector<int64_t>& begins,
                    int64_t batch, int64_t max_rows = RecommenderMetrics::kMaxRows) {
  const int64_t n = rows.logits.size(0);
  std::vector<RecommenderMetrics> ranks;
  std::vector<at::Tensor> gathered;
  for (size_t r = 0; r < begins.size(); ++r) {
    ranks.emplace_back(wanted, n, at::kCPU, max_rows);
    const int64_t end = r + 1 < begins.size() ? begins[r + 1] : n;
    for (int64_t i = begins[r]; i < end; i += batch) {
      const auto part = [&](const at::Tensor& of) { return of.slice(0, i, std::min(i + batch, end)); };
      const at::Tensor logits = part(rows.logits).unsqueeze(1);
      ranks[r].add({logits, part(rows.labels), rows.groups.defined() ? part(rows.groups) : at::Tensor(),
                    torch::scalar_tensor(0.5 * static_cast<double>(logits.size(0)))});
    }
    gathered.push_back(ranks[r].rows());
    if (r > 0) ranks[0].counts() += ranks[r].counts();
  }
  return ranks[0].compute(torch::cat(gathered));
}

}  // namespace

TEST_CASE("metrics of clicks equal scikit-learn's, however uneven the ranks") {
  const Json cases = Json::parse(trainer::read_file(TEST_DATA "/click_metrics.json"));
  REQUIRE(cases.size() > 10);
  for (const Json& test : cases) {
    const Rows rows = rows_of(test);
    const int64_t n = rows.logits.size(0);
    for (const std::vector<int64_t>& begins :
         {std::vector<int64_t>{0}, {0, n / 10, n / 10}, {0, n / 2, n - n / 8}, {0, 0, n}}) {
      INFO(test["name"] << ", " << begins.size() << " ranks, the last from row " << begins.back());
      const Evaluation found = evaluate(rows, kAll, begins, 7);
      const Json& expected = test["expected"];
      CHECK(found.values.at(Metric::kLoss) == Approx(0.5).epsilon(1e-12));
      CHECK(found.details.at("grouped_auc_groups") == expected["groups"].get<double>());
      CHECK(found.details.at("grouped_auc_one_class") == expected["one_class"].get<double>());
      for (const Metric metric : kAll) {
        if (metric == Metric::kLoss) continue;
        INFO(trainer::spec::to_string(metric) << " " << found.values.at(metric));
        const Json& value = expected.at(std::string(trainer::spec::to_string(metric)));
        if (value.is_null()) {
          CHECK(std::isnan(found.values.at(metric)));
        } else {
          CHECK(std::abs(found.values.at(metric) - value.get<double>()) < 1e-9);
        }
      }
    }
  }
}

TEST_CASE("labels of one class leave AUC and entropy undefined, with a warning") {
  const at::Tensor logits = torch::tensor({0.5F, 1.0F, -1.0F}), groups = torch::tensor({1, 1, 2}, at::kLong);
  const Evaluation clicks = evaluate({logits, torch::ones({3}), groups}, kAll, {0}, 2);
  CHECK(std::isnan(clicks.values.at(Metric::kAuc)));
  CHECK(clicks.values.at(Metric::kCalibration) < 1);
  CHECK(clicks.warnings ==
        std::vector<std::string>{"grouped_auc is not defined: each of 2 groups has labels of one class",
                                 "auc, normalized_entropy not defined: all 3 labels are 1"});
  const Evaluation none =
      evaluate({logits, torch::zeros({3}), {}}, {Metric::kCalibration, Metric::kAuc}, {0}, 2);
  CHECK(std::isnan(none.values.at(Metric::kCalibration)));
  CHECK(none.warnings == std::vector<std::string>{"auc, calibration not defined: all 3 labels are 0"});
}

TEST_CASE("constant predictions are warned of, once and whatever is measured") {
  const at::Tensor labels = torch::tensor({0.0F, 1.0F, 1.0F, 0.0F});
  const std::vector<std::string> warning = {"predictions are constant: 0.119203 for each of 4 rows"};
  for (const Metric metric : {Metric::kAuc, Metric::kLogLoss}) {
    for (const int64_t max_rows : {0, 100}) {
      const Evaluation found = evaluate({torch::full({4}, -2.0), labels, {}}, {metric}, {0, 3}, 2, max_rows);
      CHECK(found.warnings == warning);
      if (metric == Metric::kAuc) CHECK(found.values.at(metric) == 0.5);
    }
  }
  CHECK(evaluate({torch::zeros({4}), labels, {}}, {Metric::kAuc}, {0}, 4).warnings.size() == 1);
  const at::Tensor nearly = torch::tensor({-2.0F, -2.0F, -2.0F, -2.001F});
  CHECK(evaluate({nearly, labels, {}}, {Metric::kAuc}, {0}, 4).warnings.empty());
}

TEST_CASE("a prediction that is NaN makes the metrics NaN, with a warning") {
  Rows rows = random_rows(50, 3);
  rows.logits[17] = std::nan("");
  for (const int64_t max_rows : {0, 100}) {
    const Evaluation found = evaluate(rows, kAll, {0, 20}, 8, max_rows);
    for (const Metric metric : kAll) {
      if (metric != Metric::kLoss) CHECK(std::isnan(found.values.at(metric)));
    }
    CHECK(found.warnings == std::vector<std::string>{"1 of 50 predictions are NaN"});
  }
}

TEST_CASE("scores that are infinite have their place above and below all others") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Rows rows = {torch::tensor({-kInf, 1.0F, 0.0F, kInf}), torch::tensor({0.0F, 0.0F, 1.0F, 1.0F}), {}};
  for (const int64_t max_rows : {0, 100}) {
    const Evaluation found = evaluate(rows, {Metric::kAuc, Metric::kLogLoss}, {0}, 4, max_rows);
    CHECK(found.values.at(Metric::kAuc) == 0.75);
    CHECK(std::isfinite(found.values.at(Metric::kLogLoss)));
    CHECK(found.warnings.empty());
  }
}

TEST_CASE("above the limit of rows AUC is counted in bins, within the bound that it states") {
  const Rows rows = random_rows(20000, 1);
  const std::vector<Metric> wanted = {Metric::kAuc, Metric::kLogLoss};
  const Evaluation exact = evaluate(rows, wanted, {0}, 512, 20000);
  CHECK(exact.details.empty());
  const Evaluation binned = evaluate(rows, wanted, {0, 123, 5000}, 512, 19999);
  const double error = binned.details.at("auc_error");
  CHECK(error < 2e-5);
  CHECK(error > 0);
  CHECK(std::abs(binned.values.at(Metric::kAuc) - exact.values.at(Metric::kAuc)) <= error);
  CHECK(binned.values.at(Metric::kLogLoss) == Approx(exact.values.at(Metric::kLogLoss)).epsilon(1e-12));
}

TEST_CASE("above the limit of rows the AUC of groups is of a sample of whole groups") {
  const Rows rows = random_rows(40000, 2000);
  const std::vector<Metric> wanted = {Metric::kGroupedAuc};
  const Evaluation all = evaluate(rows, wanted, {0}, 1000);
  const Evaluation sample = evaluate(rows, wanted, {0, 10000}, 1000, 10000);
  CHECK(sample.details.at("grouped_auc_sampled") == 0.25);
  const double groups = sample.details.at("grouped_auc_groups") + sample.details.at("grouped_auc_one_class");
  CHECK(groups > 400);
  CHECK(groups < 600);
  // 500 groups of 20 rows: their AUCs spread by 0.13, so the mean by 0.006.
  CHECK(std::abs(sample.values.at(Metric::kGroupedAuc) - all.values.at(Metric::kGroupedAuc)) < 0.03);
}

TEST_CASE("rows are kept only for an AUC that is exact, 8 bytes of each") {
  const Rows rows = random_rows(6, 2);
  const auto kept = [&](Metric metric, int64_t max_rows) {
    RecommenderMetrics metrics({metric}, 6, at::kCPU, max_rows);
    metrics.add({rows.logits, rows.labels, rows.groups, torch::zeros({})});
    return metrics.rows();
  };
  CHECK(kept(Metric::kLogLoss, 6).sizes() == at::IntArrayRef({0, 1}));
  CHECK(kept(Metric::kAuc, 5).sizes() == at::IntArrayRef({0, 1}));
  CHECK(kept(Metric::kGroupedAuc, 6).sizes() == at::IntArrayRef({6, 2}));
  const at::Tensor keys = kept(Metric::kAuc, 6);
  REQUIRE(keys.sizes() == at::IntArrayRef({6, 1}));
  for (int64_t i = 0; i < 6; ++i) {
    CHECK(keys[i].item<int64_t>() ==
          trainer::metrics::row_key(rows.logits[i].item<float>(), rows.labels[i].item<float>() > 0));
  }
}

TEST_CASE("metrics of no rows are NaN, and an empty batch changes nothing") {
  RecommenderMetrics metrics(kAll, 0);
  metrics.add({torch::zeros({0, 1}), torch::zeros({0}), torch::zeros({0}, at::kLong), torch::zeros({})});
  const Evaluation found = metrics.compute(metrics.rows());
  CHECK(found.values.size() == kAll.size());
  for (const auto& [metric, value] : found.values) CHECK(std::isnan(value));
  CHECK(found.warnings.empty());
}

TEST_CASE("grouped AUC without groups is refused") {
  RecommenderMetrics metrics({Metric::kGroupedAuc}, 2);
  CHECK_THROWS_MATCHES(
      metrics.add({torch::zeros({2}), torch::zeros({2}), {}, torch::zeros({})}), trainer::SpecError,
      Message("evaluation.metrics: got grouped_auc, but rows have no group; expected data.features.group"));
}
