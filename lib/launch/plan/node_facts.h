#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/plan/preflight.h"

namespace trainer::launch {

// What should be the same on all nodes of a job.
struct NodeFacts {
  std::string host;  // to name the node
  std::string trainer_version;
  std::string libtorch_version;
  std::string spec_hash;  // of the job and its overrides
  std::string gpus;       // hardware::describe(machine.gpus)
  std::string driver;
  bool operator==(const NodeFacts&) const = default;
};

// For sending them between nodes. from_json throws nlohmann::json::exception.
void to_json(nlohmann::json& json, const NodeFacts& facts);
void from_json(const nlohmann::json& json, NodeFacts& facts);

// Says which nodes differ from most others, and in what: an error for versions and the job, a warning for GPUs and
// their driver. `nodes`: by node rank.
std::vector<Check> compare_facts(const std::vector<NodeFacts>& nodes);

}  // namespace trainer::launch
