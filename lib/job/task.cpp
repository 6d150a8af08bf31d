#include "job/task.h"

#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / "config.json", error);
}

fs::path find_model(const spec::JobSpec& spec, const fs::path& said) {
  const fs::path output_dir = spec.job.output_dir.empty() ? "runs/" + spec.job.name : spec.job.output_dir;
  std::error_code error;
  if (!said.empty()) {
    if (is_model(said)) return said;
    if (!fs::is_directory(said, error))
      fail<SpecError>("--model: got {}; there is no such directory", said.string());
    const bool is_output_dir = is_model(said / "best") || is_model(said / "final");
    fail<SpecError>(
        "--model: {} has no config.json; expected a saved model{}", said.string(),
        is_output_dir
            ? fmt::format("\nhint: {}", (said / (is_model(said / "best") ? "best" : "final")).string())
            : "");
  }
  for (const char* name : {"best", "final"}) {
    if (is_model(output_dir / name)) return output_dir / name;
  }
  fail<SpecError>(
      "{}: has neither best nor final; expected a model that trainer run saved there\nhint: --model names "
      "another one",
      output_dir.string());
}

}  // namespace

std::string_view name(Task::Kind kind) {
  switch (kind) {
    case Task::Kind::kTrain:
      return "run";
    case Task::Kind::kEvaluate:
      return "eval";
    case Task::Kind::kPredict:
      return "predict";
  }
  return "?";
}

spec::JobSpec for_saved_model(spec::JobSpec spec, Task& task) {
  const bool is_gpt = spec.model.type == spec::ModelType::kGpt;
  if (is_gpt && task.kind == Task::Kind::kPredict) {
    fail<SpecError>(
        "predict: model.type is gpt, which has no prediction for each row\nhint: trainer generate, or "
        "trainer eval");
  }
  const bool has_part = is_gpt && spec.data.validation_fraction > 0;
  if (spec.data.validation.path.empty() && !has_part) {
    fail<SpecError>("{}: there is no data: the job has no data.validation.path; expected it, or --data",
                    name(task.kind));
  }
  task.model = find_model(spec, task.model);
  spec.model.pretrained = task.model.string();
  spec.model.init = spec::ModelInit::kPretrained;
  // Their shapes are the model's own; where tables are kept is not.
  spec.model.gpt = {};
  const spec::Recommender said = std::exchange(spec.model.recommender, {});
  spec.model.recommender.embedding_backend = said.embedding_backend;
  spec.model.recommender.embedding_memory = said.embedding_memory;
  spec.model.recommender.cache_load_factor = said.cache_load_factor;
  for (const auto& [table, options] : said.tables) {
    spec.model.recommender.tables[table].sharding = options.sharding;
  }
  // The characters of the training text are in the model's tokenizer.
  spec::TokenizerSource& tokenizer = spec.data.tokenizer;
  if (tokenizer.type == spec::TokenizerType::kChar && tokenizer.path.empty()) tokenizer = {};
  if (!spec.data.validation.path.empty()) spec.data.train = spec.data.validation;
  return spec;
}

void check_output(const Task& task) {
  const fs::path& path = task.output;
  if (path.empty()) return;
  const bool is_table = task.kind == Task::Kind::kPredict;
  const char* flag = is_table ? "--output" : "--json";
  if (is_table && path.extension() != ".csv" && path.extension() != ".parquet") {
    fail<SpecError>("{}: got {}; expected a name that ends in .csv or .parquet", flag, path.string());
  }
  std::error_code error;
  if (fs::is_directory(path, error))
    fail<SpecError>("{}: got {}, a directory; expected a file", flag, path.string());
  if (path.has_parent_path() && !fs::is_directory(path.parent_path(), error)) {
    fail<SpecError>("{}: got {}; there is no directory {}", flag, path.string(), path.parent_path().string());
  }
}

}  // namespace trainer
