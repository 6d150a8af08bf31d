#include <algorithm>
#include <filesystem>

#include "job/bert_config.h"
#include "job/faults.h"
#include "job/job.h"
#include "spec/fault.h"

namespace trainer {
namespace fs = std::filesystem;

void check_files(const Job& job) {
  const auto& s = job.spec;
  JobFaults faults(s.said);
  const auto table = [&](const std::string& key, const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      faults.add(key, "got {}, a directory; expected a file", spec::shown(path));
    } else if (!fs::exists(path, error)) {
      faults.add(key, "got {}; there is no such file{}", spec::shown(path),
                 fs::path(path).is_relative() ? " (from " + fs::current_path(error).string() + ")" : "");
    }
  };
  table("data.train.path", s.data.train.path);
  if (!s.data.validation.path.empty()) table("data.validation.path", s.data.validation.path);

  const fs::path model = s.model.pretrained;
  std::error_code error;
  if (!fs::is_directory(model, error)) {
    faults.add("model.pretrained", "got {}; there is no such directory", spec::shown(model.string()));
  } else {
    const auto missing = [&](std::initializer_list<const char*> names) {
      return std::none_of(names.begin(), names.end(),
                          [&](const char* name) { return fs::exists(model / name, error); });
    };
    if (missing({"vocab.txt", "tokenizer.json"})) {
      faults.add("model.pretrained", "{} has no tokenizer; expected vocab.txt or tokenizer.json",
                 model.string());
    }
    if (s.model.init == spec::ModelInit::kPretrained &&
        missing({"model.safetensors", "model.safetensors.index.json"})) {
      faults.add(
          "model.pretrained", "{} has no weights; expected model.safetensors{}", model.string(),
          missing({"pytorch_model.bin"}) ? ", or model.init: random" : " (convert pytorch_model.bin to it)");
    }
    load_bert_config(job, faults);
  }
  if (fs::exists(job.output_dir, error) && !fs::is_directory(job.output_dir, error)) {
    faults.add("job.output_dir", "got {}, a file; expected a directory",
               spec::shown(job.output_dir.string()));
  }
  faults.throw_if_any();
}

}  // namespace trainer
