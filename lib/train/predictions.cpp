#include "train/predictions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <utility>

namespace trainer::train {
namespace {

using spec::ProblemType;
using tokens::Column;

template <class T>
std::vector<T> values(const at::Tensor& column) {
  const at::Tensor typed = column.to(c10::CppTypeToScalarType<T>::value).contiguous();
  return {typed.const_data_ptr<T>(), typed.const_data_ptr<T>() + typed.numel()};
}

}  // namespace

Predictions::Predictions(const Job& job)
    : is_recommender_(job.spec.model.type == spec::ModelType::kRecommender),
      problem_(job.spec.model.problem_type),
      num_outputs_(is_recommender_ ? 1 : job.spec.model.num_labels),
      num_labels_(is_recommender_ || problem_ == ProblemType::kSingleLabel ? 1 : num_outputs_),
      label_names_(job.spec.data.label_names) {}

at::Tensor Predictions::rows(const at::Tensor& logits, const data::Batch& batch) const {
  const auto n = static_cast<int64_t>(batch.samples.size());
  const at::Tensor rows =
      at::full({n, width()}, std::numeric_limits<double>::quiet_NaN(), logits.options().dtype(at::kDouble));
  if (n == 0) return rows;
  rows.select(1, 0).copy_(at::tensor(batch.samples, at::kLong));
  rows.slice(1, 1, 1 + num_outputs_).copy_(logits.view({n, num_outputs_}));
  if (batch.labels.defined()) rows.slice(1, 1 + num_outputs_).copy_(batch.labels.view({n, num_labels_}));
  return rows;
}

std::string Predictions::name(int64_t label) const {
  return label_names_.empty() ? std::to_string(label) : label_names_[static_cast<size_t>(label)];
}

// labels: [n] integers
Column Predictions::classes(std::string column, const at::Tensor& labels) const {
  std::vector<int64_t> numbers = values<int64_t>(labels);
  if (label_names_.empty()) return {std::move(column), std::move(numbers)};
  std::vector<std::string> names;
  for (const int64_t number : numbers) names.push_back(name(number));
  return {std::move(column), std::move(names)};
}

// members: [n, L] bool
Column Predictions::sets(std::string column, const at::Tensor& members) const {
  std::vector<std::string> sets(static_cast<size_t>(members.size(0)));
  for (int64_t l = 0; l < num_outputs_; ++l) {
    const std::vector<int64_t> is_member = values<int64_t>(members.select(1, l));
    for (size_t i = 0; i < sets.size(); ++i) {
      if (is_member[i] == 0) continue;
      if (!sets[i].empty()) sets[i] += '|';
      sets[i] += name(l);
    }
  }
  return {std::move(column), std::move(sets)};
}

tokens::Table Predictions::table(const at::Tensor& gathered) const {
  const at::Tensor on_host = gathered.cpu();
  const at::Tensor rows =
      on_host.index_select(0, on_host.select(1, 0).argsort()).t().contiguous();  // [width, n]
  const at::Tensor outputs = rows.slice(0, 1, 1 + num_outputs_), labels = rows.slice(0, 1 + num_outputs_);
  const bool has_labels = !labels[0][0].isnan().item<bool>();
  tokens::Table table = {{"row", values<int64_t>(rows[0])}};
  if (is_recommender_) {
    if (has_labels) table.push_back({"label", values<int64_t>(labels[0])});
    table.push_back({"probability", values<float>(outputs[0].sigmoid())});
    return table;
  }
  if (problem_ == ProblemType::kRegression) {
    const auto add = [&](const char* column, const at::Tensor& of) {
      for (int64_t l = 0; l < num_outputs_; ++l) {
        table.push_back({num_outputs_ == 1 ? column : fmt::format("{}_{}", column, l), values<float>(of[l])});
      }
    };
    if (has_labels) add("label", labels);
    add("prediction", outputs);
    return table;
  }
  at::Tensor probabilities;
  if (problem_ == ProblemType::kSingleLabel) {
    if (has_labels) table.push_back(classes("label", labels[0]));
    table.push_back(classes("prediction", outputs.argmax(0)));
    probabilities = outputs.softmax(0);
  } else {
    if (has_labels) table.push_back(sets("label", labels.t() > 0.5));
    table.push_back(sets("prediction", outputs.t() > 0));
    probabilities = outputs.sigmoid();
  }
  for (int64_t l = 0; l < num_outputs_; ++l) {
    table.push_back({"probability_" + name(l), values<float>(probabilities[l])});
  }
  return table;
}

}  // namespace trainer::train
