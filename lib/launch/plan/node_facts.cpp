#include "launch/plan/node_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace trainer::launch {
namespace {

constexpr size_t kMaxNamed = 4;  // nodes in one message

using Field = std::string NodeFacts::*;

std::string name_of(const std::vector<NodeFacts>& nodes, size_t rank) {
  return fmt::format("node {} ({})", rank, nodes[rank].host);
}

// Of equally frequent ones, that of the lowest rank.
std::string most_frequent(const std::vector<NodeFacts>& nodes, Field field) {
  std::map<std::string, int64_t> counts;
  for (const NodeFacts& node : nodes) ++counts[node.*field];
  return (*std::max_element(
             nodes.begin(), nodes.end(),
             [&](const NodeFacts& a, const NodeFacts& b) { return counts[a.*field] < counts[b.*field]; })).*
         field;
}

Check compare(const std::vector<NodeFacts>& nodes, const char* name, Field field, Check::Status status,
              const char* mend) {
  const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
  const std::string common = most_frequent(nodes, field);
  std::string found;
  size_t num_different = 0;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank].*field == common || ++num_different > kMaxNamed) continue;
    found += fmt::format("{}{} has {}", found.empty() ? "" : ", ", name_of(nodes, rank),
                         shown(nodes[rank].*field));
  }
  if (num_different == 0) return {name, Check::Status::kOk, shown(common) + " on all nodes", ""};
  if (num_different > kMaxNamed) found += fmt::format(" and {} more differ", num_different - kMaxNamed);
  const auto like_most =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeFacts& n) { return n.*field == common; });
  const size_t num_equal = nodes.size() - num_different;
  found += fmt::format("; {}{} {} {}", name_of(nodes, static_cast<size_t>(like_most - nodes.begin())),
                       num_equal == 1 ? "" : fmt::format(" and {} like it", num_equal - 1),
                       num_equal == 1 ? "has" : "have", shown(common));
  return {name, status, found, mend};
}

}  // namespace

std::vector<Check> compare_facts(const std::vector<NodeFacts>& nodes) {
  if (nodes.empty()) return {};
  using Status = Check::Status;
  return {
      compare(nodes, "trainer", &NodeFacts::trainer_version, Status::kError,
              "install the same version on every node"),
      compare(nodes, "LibTorch", &NodeFacts::libtorch_version, Status::kError,
              "install the same version on every node"),
      compare(nodes, "job", &NodeFacts::spec_hash, Status::kError,
              "start every node with the same job file, program and --set"),
      compare(nodes, "GPUs", &NodeFacts::gpus, Status::kWarning,
              "the slowest or smallest sets the pace of all"),
      compare(nodes, "GPU driver", &NodeFacts::driver, Status::kWarning,
              "install the same driver on every node"),
  };
}

void to_json(nlohmann::json& json, const NodeFacts& facts) {
  json = {{"host", facts.host},
          {"trainer_version", facts.trainer_version},
          {"libtorch_version", facts.libtorch_version},
          {"spec_hash", facts.spec_hash},
          {"gpus", facts.gpus},
          {"driver", facts.driver}};
}

void from_json(const nlohmann::json& json, NodeFacts& facts) {
  json.at("host").get_to(facts.host);
  json.at("trainer_version").get_to(facts.trainer_version);
  json.at("libtorch_version").get_to(facts.libtorch_version);
  json.at("spec_hash").get_to(facts.spec_hash);
  json.at("gpus").get_to(facts.gpus);
  json.at("driver").get_to(facts.driver);
}

}  // namespace trainer::launch
