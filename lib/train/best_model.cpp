#include "train/best_model.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "metrics/evaluation.h"
#include "spec/enums.h"

namespace trainer::train {

BestModel::BestModel(const Job& job)
    : metrics_(job.spec.evaluation.metrics),
      metric_(job.spec.evaluation.best),
      patience_(job.spec.evaluation.early_stop_patience) {}

bool BestModel::consider(const metrics::EvaluationRecord& record) {
  last_ = record;
  if (!metric_) return false;
  const double value = record.found.values.at(*metric_);
  bool better = !std::isnan(value);
  if (better && best_.samples > 0) {
    better = metrics::is_better(*metric_, value, best_.found.values.at(*metric_));
  }
  if (better) {
    best_ = record;
    best_.best = true;
  }
  since_best_ = better ? 0 : since_best_ + 1;
  return better;
}

tensors::NamedTensors BestModel::state() {
  tensors::NamedTensors state{{"since_best", tensors::view_of(since_best_)}};
  for (metrics::EvaluationRecord* record : {&last_, &best_}) {
    const auto add = [&](std::string_view name, const at::Tensor& view) {
      state.emplace_back(fmt::format("{}.{}", record == &last_ ? "last" : "best", name), view);
    };
    add("step", tensors::view_of(record->step));
    add("epoch", tensors::view_of(record->epoch));
    add("time_s", tensors::view_of(record->time_s));
    add("seconds", tensors::view_of(record->seconds));
    add("samples", tensors::view_of(record->samples));
    add("is_best", tensors::view_of(record->best));
    for (const spec::Metric metric : metrics_) {
      double& value = record->found.values.try_emplace(metric, metrics::kNotMeasured).first->second;
      add(spec::to_string(metric), tensors::view_of(value));
    }
  }
  return state;
}

}  // namespace trainer::train
