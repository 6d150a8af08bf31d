#include "model/hf/weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>

#include <set>

#include "core/error.h"

namespace trainer::model {
LoadReport load_weights(HfModel& model, const WeightFiles* files, const std::string& where, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  LoadReport report;
  std::set<std::string> used;
  std::vector<std::string> mismatches;
  for (auto& [name, weight] : model.hf_views(model.parameters())) {
    std::string found;
    if (files != nullptr) {
      for (const std::string& alias : model.aliases(name)) {
        if (found.empty() && files->contains(alias)) found = alias;
      }
    }
    if (found.empty()) {
      model.initialize(name, weight, generator);
      report.newly_initialized.push_back(name);
      continue;
    }
    used.insert(found);
    const at::Tensor source = files->tensor(found);
    if (!at::isFloatingType(source.scalar_type())) {
      mismatches.push_back(fmt::format("{}: got dtype {}, expected a floating-point one", found,
                                       at::toString(source.scalar_type())));
    } else if (source.sizes() != weight.sizes()) {
      mismatches.push_back(fmt::format("{}: got [{}], expected [{}]", found, fmt::join(source.sizes(), ", "),
                                       fmt::join(weight.sizes(), ", ")));
    } else {
      weight.copy_(source);
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
  return report;
}

}  // namespace trainer::model
