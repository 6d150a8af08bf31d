#include "model/hf_weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>

#include <set>

#include "core/error.h"

namespace trainer::model {
namespace {

constexpr std::string_view kPrefix = "bert.";

// Names that transformers has given to weight `name` over time, the present one first.
std::vector<std::string> aliases(const std::string& name) {
  std::vector<std::string> names{name};
  const auto add_replaced = [&](std::string_view end, std::string_view old_end) {
    if (name.ends_with(end)) names.push_back(name.substr(0, name.size() - end.size()).append(old_end));
  };
  add_replaced("LayerNorm.weight", "LayerNorm.gamma");
  add_replaced("LayerNorm.bias", "LayerNorm.beta");
  for (size_t i = 0, n = names.size(); i < n; ++i) {
    if (names[i].starts_with(kPrefix)) names.push_back(names[i].substr(kPrefix.size()));
  }
  return names;
}

void initialize(const at::Tensor& weight, const std::string& name, const BertConfig& config,
                at::Generator& generator) {
  if (name.ends_with(".bias")) {
    weight.zero_();
  } else if (name.ends_with("LayerNorm.weight")) {
    weight.fill_(1);
  } else {
    weight.normal_(0, config.initializer_range, generator);
    if (name.ends_with("word_embeddings.weight") && config.pad_token_id >= 0)
      weight[config.pad_token_id].zero_();
  }
}

}  // namespace

LoadReport load_weights(BertClassifier& model, const WeightFiles* files, const std::string& where,
                        uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  LoadReport report;
  std::set<std::string> used;
  std::vector<std::string> mismatches;
  for (auto& [name, weight] : model.hf_views(model.parameters())) {
    std::string found;
    if (files != nullptr) {
      for (const std::string& alias : aliases(name)) {
        if (found.empty() && files->contains(alias)) found = alias;
      }
    }
    if (found.empty()) {
      initialize(weight, name, model.config(), generator);
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
        "{}: the shapes of {} weights differ from config.json and the job:\n  {}\n"
        "  hint: the classifier's first size is model.num_labels",
        where, mismatches.size(), fmt::join(mismatches, "\n  "));
  }
  if (files != nullptr && used.empty()) {
    fail<CheckpointError>("{}: none of its weights is one of BERT; the first is {}", where,
                          files->names().empty() ? "(none)" : files->names().front());
  }
  if (files != nullptr) {
    for (std::string& name : files->names()) {
      const bool is_buffer =
          name.ends_with("embeddings.position_ids") || name.ends_with("embeddings.token_type_ids");
      if (!is_buffer && !used.contains(name)) report.unused.push_back(std::move(name));
    }
  }
  return report;
}

}  // namespace trainer::model
