#include "checkpoint/changes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

namespace trainer::checkpoint {
namespace {

// Beginnings of keys.
constexpr std::string_view kNoMatter[] = {"launch.",
                                          "logging.",
                                          "checkpoint.",
                                          "hardware.",
                                          "parallel.",
                                          "job.name",
                                          "job.output_dir",
                                          "data.num_workers",
                                          "data.prefetch",
                                          "data.pin_memory",
                                          "data.train.path",
                                          "data.train.format",
                                          "data.validation",
                                          "model.pretrained",
                                          "model.init",
                                          "train.attention",
                                          "train.recompute",
                                          "train.max_skipped_steps",
                                          "train.on_nonfinite",
                                          "train.require_loss_decrease"};
constexpr std::string_view kBreaking[] = {
    "job.seed",        "model.type",         "model.num_labels", "model.problem_type",
    "model.gpt.",      "model.recommender.", "data.train.",      "data.tokenizer.",
    "data.features.",  "data.documents",     "data.windows",     "data.label_names",
    "data.max_length", "data.truncation",    "data.shuffle",     "optimizer.type"};

template <size_t N>
bool begins_with_one_of(const std::string& key, const std::string_view (&list)[N]) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](std::string_view begin) { return key.starts_with(begin); });
}

// Lines "  key: value" by their full key; what is indented more belongs to the line above.
std::map<std::string, std::string> values(std::string_view yaml) {
  std::map<std::string, std::string> values;
  std::vector<std::pair<size_t, std::string>> parents;  // indent, full key
  while (!yaml.empty()) {
    const std::string_view line = yaml.substr(0, yaml.find('\n'));
    yaml.remove_prefix(std::min(yaml.size(), line.size() + 1));
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos) continue;
    const size_t from = line[indent] == '"' ? line.find('"', indent + 1) : indent;  // of a map's key
    const size_t colon = line.find(':', std::min(from, line.size()));
    if (colon == std::string_view::npos) continue;
    while (!parents.empty() && parents.back().first >= indent) parents.pop_back();
    std::string key(line.substr(indent, colon - indent));
    if (!parents.empty()) key = parents.back().second + "." + key;
    const std::string_view value = line.substr(std::min(line.size(), colon + 2));
    if (!value.empty()) values[key] = value;
    parents.emplace_back(indent, std::move(key));
  }
  return values;
}

}  // namespace

std::vector<Change> changes(const std::string& before, const std::string& after) {
  const auto old = values(before), now = values(after);
  std::vector<Change> changes;
  const auto add = [&](const std::string& key, const std::string& was, const std::string& is) {
    if (was != is && !begins_with_one_of(key, kNoMatter))
      changes.push_back({key, was, is, begins_with_one_of(key, kBreaking)});
  };
  for (const auto& [key, value] : old) add(key, value, now.contains(key) ? now.at(key) : "");
  for (const auto& [key, value] : now) {
    if (!old.contains(key)) add(key, "", value);
  }
  return changes;
}

}  // namespace trainer::checkpoint
