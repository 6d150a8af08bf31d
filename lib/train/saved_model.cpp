#include "train/saved_model.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "data/loader.h"
#include "metrics/console.h"
#include "spec/enums.h"
#include "train/autocast.h"
#include "train/device_feed.h"
#include "train/evaluator.h"
#include "train/predictions.h"

namespace trainer::train {
namespace {

// Of a gathered part of the predictions.
constexpr int64_t kMostValues = int64_t{1} << 18;

std::string data_path(const Job& job) {
  const spec::Data& data = job.spec.data;
  return data.validation.path.empty()
             ? fmt::format("the last {:.4g} of {}", data.validation_fraction, data.train.path)
             : data.validation.path;
}

}  // namespace

void check_saved_model(const Job& job, const model::LoadReport& report) {
  const std::string& where = job.spec.model.pretrained;
  if (const auto& missing = report.newly_initialized; !missing.empty()) {
    fail<SpecError>(
        "--model: {} lacks {} weights of this job's model, such as {}; expected a model that such a job "
        "saved",
        where, missing.size(), missing.front());
  }
  if (job.spec.model.type != spec::ModelType::kBertClassifier) return;
  const nlohmann::json config = nlohmann::json::parse(read_file(where + "/config.json"));
  const auto problem = config.find("problem_type");
  const std::string_view expected = spec::to_string(job.spec.model.problem_type);
  if (problem != config.end() && problem->is_string() && problem->get<std::string>() != expected) {
    fail<SpecError>("--model: {} is of problem_type {}, and model.problem_type is {}; expected the same",
                    where, problem->get<std::string>(), expected);
  }
}

void evaluate(const SavedModelParts& p) {
  const Evaluator evaluator(p.job, p.data, p.device, p.communicator, p.progress);
  metrics::SavedModelRecord record;
  record.model = p.job.spec.model.pretrained;
  record.data = data_path(p.job);
  p.progress.begin(report::Phase::kEvaluation);
  const double begin_s = monotonic_s();
  record.found = evaluator.run(p.model);
  record.seconds = monotonic_s() - begin_s;
  record.samples = evaluator.num_samples();
  if (!p.job.world.is_main()) return;
  log_info("{}", metrics::evaluation_table(record));
  for (const std::string& warning : record.found.warnings) log_warning("{}", warning);
  write_file_atomic(p.task.output.empty() ? p.job.output_dir / "evaluation.json" : p.task.output,
                    metrics::to_json(record, unix_time_s()) + "\n");
}

void predict(const SavedModelParts& p) {
  data::LoaderOptions options = data::LoaderOptions::for_evaluation(p.job);
  options.samples = 0;  // every one
  data::Loader loader(p.data.validation, options);
  DeviceFeed feed(loader, p.device);
  const Predictions predictions(p.job);
  const at::NoGradGuard no_grad;
  const Autocast autocast(p.device.type(), p.job.spec.train.precision);
  p.model.eval();
  std::unique_ptr<tokens::TableWriter> table;
  if (p.job.world.is_main()) table = tokens::open_table(p.task.output);
  const double begin_s = monotonic_s();
  // Samples of a step follow those of the step before: parts of whole steps are parts of the file, on any number of ranks.
  std::vector<at::Tensor> part;
  int64_t part_values = 0;
  p.progress.begin(report::Phase::kEvaluation);
  for (int64_t left = loader.num_steps(0); left > 0; --left) {
    p.progress.beat();
    const data::MicroBatch micro = feed.next();
    part.push_back(predictions.rows(p.model.forward(micro.batch).logits, micro.batch));
    part_values += micro.step_samples * predictions.width();
    if (left > 1) feed.prefetch();
    if (left > 1 && part_values < kMostValues) continue;
    p.progress.begin(report::Phase::kSync);
    const at::Tensor rows = p.communicator.all_gather_rows(at::cat(part));
    p.progress.begin(report::Phase::kEvaluation);
    if (table != nullptr) table->write(predictions.table(rows));
    part.clear();
    part_values = 0;
  }
  if (table == nullptr) return;
  table->finish();
  const double seconds = monotonic_s() - begin_s;
  const int64_t rows = loader.num_samples();
  log_info("{}",
           metrics::table("predictions", {{"model", p.job.spec.model.pretrained},
                                          {"data", data_path(p.job)},
                                          {"rows", fmt::format("{} in {:.1f} s, {:.0f} rows/s", rows, seconds,
                                                               static_cast<double>(rows) / seconds)},
                                          {"file", p.task.output.string()}}));
}

}  // namespace trainer::train
