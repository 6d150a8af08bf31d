#include "train/predictions.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

using trainer::Job;
using trainer::data::Batch;
using trainer::spec::ProblemType;
using trainer::tokens::Table;
using trainer::train::Predictions;

namespace {

Job job_of(ProblemType problem, int64_t num_labels, std::vector<std::string> names = {}) {
  Job job;
  job.spec.model.problem_type = problem;
  job.spec.model.num_labels = num_labels;
  job.spec.data.label_names = std::move(names);
  return job;
}

std::vector<std::string> names(const Table& table) {
  std::vector<std::string> names;
  for (const auto& column : table) names.push_back(column.name);
  return names;
}

template <class T>
std::vector<T> column(const Table& table, size_t i) {
  return std::get<std::vector<T>>(table.at(i).values);
}

using Names = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

// Two ranks' rows, out of order; the second has an empty batch too.
Table gathered(const Job& job, const at::Tensor& logits, const at::Tensor& labels) {
  const Predictions predictions(job);
  Batch first, second, none;
  first.samples = {4, 2};
  second.samples = {3};
  if (labels.defined()) {
    first.labels = labels.slice(0, 0, 2);
    second.labels = labels.slice(0, 2);
  }
  return predictions.table(
      at::cat({predictions.rows(logits.slice(0, 0, 2), first), predictions.rows(logits.slice(0, 2), second),
               predictions.rows(logits.slice(0, 0, 0), none)}));
}

}  // namespace

TEST_CASE("predictions of one label are the most probable, with every label's probability") {
  const at::Tensor logits = at::tensor({0.0, std::log(3.0), 2.0, 2.0, 5.0, 0.0}, at::kFloat).view({3, 2});
  const at::Tensor labels = at::tensor({1, 0, 1}, at::kLong);
  const Table numbers = gathered(job_of(ProblemType::kSingleLabel, 2), logits, labels);
  CHECK(names(numbers) == Names{"row", "label", "prediction", "probability_0", "probability_1"});
  CHECK(column<int64_t>(numbers, 0) == Numbers{2, 3, 4});
  CHECK(column<int64_t>(numbers, 1) == Numbers{0, 1, 1});
  CHECK(column<int64_t>(numbers, 2) == Numbers{0, 0, 1});
  CHECK(column<float>(numbers, 4)[2] == Approx(0.75));
  CHECK(column<float>(numbers, 3)[0] == Approx(0.5));
  const Table named = gathered(job_of(ProblemType::kSingleLabel, 2, {"no", "yes"}), logits, {});
  CHECK(names(named) == Names{"row", "prediction", "probability_no", "probability_yes"});
  CHECK(column<std::string>(named, 1) == Names{"no", "no", "yes"});
}

TEST_CASE("predictions of several labels are their sets") {
  const at::Tensor logits = at::tensor({1.0, 2.0, -1.0, -2.0, -1.0, 3.0}, at::kFloat).view({3, 2});
  const at::Tensor labels = at::tensor({1.0, 0.0, 1.0, 1.0, 0.0, 0.0}, at::kFloat).view({3, 2});
  const Table table = gathered(job_of(ProblemType::kMultiLabel, 2, {"a", "b"}), logits, labels);
  CHECK(names(table) == Names{"row", "label", "prediction", "probability_a", "probability_b"});
  CHECK(column<std::string>(table, 1) == Names{"a|b", "", "a"});
  CHECK(column<std::string>(table, 2) == Names{"", "b", "a|b"});
  CHECK(column<float>(table, 3)[2] == Approx(1 / (1 + std::exp(-1))));
}

TEST_CASE("predictions of a regression are its outputs") {
  const at::Tensor one = at::tensor({0.5, -1.0, 2.5}, at::kFloat).view({3, 1});
  const Table table =
      gathered(job_of(ProblemType::kRegression, 1), one, at::tensor({1.0, 2.0, 3.0}, at::kFloat));
  CHECK(names(table) == Names{"row", "label", "prediction"});
  CHECK(column<float>(table, 1) == std::vector<float>{2, 3, 1});
  CHECK(column<float>(table, 2) == std::vector<float>{-1, 2.5, 0.5});
  const Table two =
      gathered(job_of(ProblemType::kRegression, 2), at::cat({one, -one}, 1), at::cat({one, one}, 1));
  CHECK(names(two) == Names{"row", "label_0", "label_1", "prediction_0", "prediction_1"});
}

TEST_CASE("predictions of a recommender are probabilities, of logits of either shape") {
  Job job;
  job.spec.model.type = trainer::spec::ModelType::kRecommender;
  const at::Tensor logits = at::tensor({0.0, std::log(4.0), 100.0}, at::kFloat);
  const at::Tensor labels = at::tensor({0.0, 1.0, 1.0}, at::kFloat);
  for (const at::Tensor& of : {logits, logits.unsqueeze(1)}) {
    const Table table = gathered(job, of, labels);
    CHECK(names(table) == Names{"row", "label", "probability"});
    CHECK(column<int64_t>(table, 0) == Numbers{2, 3, 4});
    CHECK(column<int64_t>(table, 1) == Numbers{1, 1, 0});
    const std::vector<float> probability = column<float>(table, 2);
    CHECK(probability[0] == Approx(0.8));
    CHECK(probability[1] == 1);
    CHECK(probability[2] == 0.5F);
  }
  CHECK(names(gathered(job, logits, {})) == Names{"row", "probability"});
}
