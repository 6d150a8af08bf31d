#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "job/bert_config.h"
#include "job/faults.h"
#include "job/gpt_config.h"
#include "job/job.h"
#include "job/recommender_config.h"
#include "spec/fault.h"

namespace trainer {
namespace fs = std::filesystem;

namespace {

// Of the job's `type` of model; its config must fit the job.
void check_model(const Job& job, JobFaults& faults) {
  const auto& s = job.spec.model;
  const bool is_gpt = s.type == spec::ModelType::kGpt,
             is_recommender = s.type == spec::ModelType::kRecommender;
  const fs::path model = s.pretrained;
  std::error_code error;
  if (is_recommender && model.empty()) return;
  if (is_gpt && model.empty()) {
    load_gpt_config(job, faults);
    return;
  }
  if (!fs::is_directory(model, error)) {
    faults.add("model.pretrained", "got {}; there is no such directory", spec::shown(model.string()));
    return;
  }
  const auto missing = [&](std::initializer_list<const char*> names) {
    return std::none_of(names.begin(), names.end(),
                        [&](const char* name) { return fs::exists(model / name, error); });
  };
  if (is_recommender) {
    if (missing({"features.json"}) && job.spec.data.features.ids == spec::IdMapping::kVocabulary) {
      faults.add("model.pretrained",
                 "{} has no features.json, so ids have no rows; expected a saved recommender",
                 model.string());
    }
    if (s.init == spec::ModelInit::kPretrained &&
        (missing({"model.safetensors"}) || missing({"tables.index.json"}))) {
      faults.add("model.pretrained",
                 "{} has no weights; expected model.safetensors and tables.index.json, or model.init: random",
                 model.string());
    }
    try {
      RecommenderConfig::load(model);
    } catch (const SpecError& fault) {
      faults.add("model.pretrained", "{}", fault.what());
    }
    return;
  }
  if (!is_gpt && missing({"vocab.txt", "tokenizer.json"})) {
    faults.add("model.pretrained", "{} has no tokenizer; expected vocab.txt or tokenizer.json",
               model.string());
  }
  if (s.init == spec::ModelInit::kPretrained &&
      missing({"model.safetensors", "model.safetensors.index.json"})) {
    faults.add(
        "model.pretrained", "{} has no weights; expected model.safetensors{}", model.string(),
        missing({"pytorch_model.bin"}) ? ", or model.init: random" : " (convert pytorch_model.bin to it)");
  }
  if (is_gpt) {
    load_gpt_config(job, faults);
  } else {
    load_bert_config(job, faults);
  }
}

// A gpt's data may be many files: a directory, a pattern, or what the names of .bin files begin with; the worker looks
// closer (tokens/source.h). Prepared click records are a directory.
void check_data(const std::string& key, const std::string& path, spec::ModelType type, JobFaults& faults) {
  const bool is_gpt = type == spec::ModelType::kGpt;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (type == spec::ModelType::kBertClassifier)
      faults.add(key, "got {}, a directory; expected a file", spec::shown(path));
    return;
  }
  const bool is_many = is_gpt && (path.find_first_of("*?[{") != std::string::npos ||
                                  fs::exists(path + ".bin", error) || fs::exists(path + "_00000.bin", error));
  if (!is_many && !fs::exists(path, error)) {
    faults.add(key, "got {}; there is no such file{}", spec::shown(path),
               fs::path(path).is_relative() ? " (from " + fs::current_path(error).string() + ")" : "");
  }
}

}  // namespace

void check_files(const Job& job) {
  const auto& s = job.spec;
  JobFaults faults(s.said);
  const bool is_gpt = s.model.type == spec::ModelType::kGpt;
  const bool is_one = s.data.train.path == s.data.validation.path;  // told once
  if (!is_one) check_data("data.train.path", s.data.train.path, s.model.type, faults);
  if (!s.data.validation.path.empty()) {
    check_data("data.validation.path", s.data.validation.path, s.model.type, faults);
  }
  check_model(job, faults);
  std::error_code error;
  if (const std::string& path = s.data.tokenizer.path; is_gpt && !path.empty() && !fs::exists(path, error)) {
    faults.add("data.tokenizer.path", "got {}; there is no such file or directory", spec::shown(path));
  }
  if (fs::exists(job.output_dir, error) && !fs::is_directory(job.output_dir, error)) {
    faults.add("job.output_dir", "got {}, a file; expected a directory",
               spec::shown(job.output_dir.string()));
  }
  faults.throw_if_any();
}

}  // namespace trainer
