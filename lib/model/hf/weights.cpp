#include "model/hf/weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>

#include <set>
#include <vector>

#include "core/error.h"

namespace trainer::model {
namespace {

struct Match {
  std::string name;
  at::Tensor weight;
  std::string in_files;  // empty: in none
};

// The model's weights, each with where it is, and the report of both sides. Looks at headers alone.
std::vector<Match> match(const HfModel& model, const WeightFiles* files, const std::string& where,
                         LoadReport& report) {
  std::set<std::string> used;
  std::vector<std::string> mismatches;
  std::vector<Match> matches;
  for (auto& [name, weight] : model.hf_views(model.parameters())) {
    Match& to = matches.emplace_back(Match{name, weight, ""});
    if (files != nullptr) {
      for (const std::string& alias : model.aliases(name)) {
        if (to.in_files.empty() && files->contains(alias)) to.in_files = alias;
      }
    }
    if (to.in_files.empty()) {
      report.newly_initialized.push_back(name);
      continue;
    }
    used.insert(to.in_files);
    const at::Tensor source = files->tensor(to.in_files);
    if (!at::isFloatingType(source.scalar_type())) {
      mismatches.push_back(fmt::format("{}: got dtype {}, expected a floating-point one", to.in_files,
                                       at::toString(source.scalar_type())));
    } else if (source.sizes() != weight.sizes()) {
      mismatches.push_back(fmt::format("{}: got [{}], expected [{}]", to.in_files,
                                       fmt::join(source.sizes(), ", "), fmt::join(weight.sizes(), ", ")));
    }
  }
  if (!mismatches.empty()) {
    fail<CheckpointError>(
        "{}: the shapes of {} weights differ from config.json and the job:\n  {}\n  hint: {}", where,
        mismatches.size(), fmt::join(mismatches, "\n  "), model.shape_hint());
  }
  if (files != nullptr && used.empty()) {
    fail<CheckpointError>("{}: none of its weights is one of {}; the first is {}", where, model.kind(),
                          files->names().empty() ? "(none)" : files->names().front());
  }
  if (files != nullptr) {
    for (std::string& name : files->names()) {
      if (!used.contains(name) && !model.is_ignored(name)) report.unused.push_back(std::move(name));
    }
  }
  return matches;
}

}  // namespace

void HfModel::load_pretrained(const std::filesystem::path& directory) {
  const at::NoGradGuard no_grad;
  const WeightFiles files(directory);
  LoadReport report;
  const std::vector<Match> matches = match(*this, &files, directory.string(), report);
  if (!report.newly_initialized.empty()) {
    fail<CheckpointError>("{}: has no weight {}", directory.string(), report.newly_initialized.front());
  }
  for (const auto& [name, weight, in_files] : matches) weight.copy_(files.tensor(in_files));
}

LoadReport check_weights(const HfModel& model, const WeightFiles& files, const std::string& where) {
  LoadReport report;
  match(model, &files, where, report);
  return report;
}

LoadReport load_weights(HfModel& model, const WeightFiles* files, const std::string& where, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  LoadReport report;
  for (const auto& [name, weight, in_files] : match(model, files, where, report)) {
    if (in_files.empty()) {
      model.initialize(name, weight, generator);
    } else {
      weight.copy_(files->tensor(in_files));
    }
  }
  return report;
}

}  // namespace trainer::model
