#include "train/best_model.h"

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "metrics/evaluation.h"

namespace trainer::train {

BestModel::BestModel(const Job& job)
    : metric_(job.spec.evaluation.best), patience_(job.spec.evaluation.early_stop_patience) {}

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

void save_model(const Job& job, const model::Model& model, const std::string& name) {
  if (!job.world.is_main()) return;
  const std::filesystem::path temporary = job.output_dir / fmt::format(".{}.tmp", name);
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  std::filesystem::create_directories(temporary, error);
  model.save_pretrained(temporary);
  replace_directory(temporary, job.output_dir / name);
}

}  // namespace trainer::train
