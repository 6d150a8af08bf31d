#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/fault.h"
#include "spec/yaml_tree.h"

// The launch section outside the job file: every key of it is a command-line flag and a PET_* variable too.

namespace trainer::spec {

struct LaunchKey {
  enum class Kind { kText, kSwitch, kList, kMap };
  std::string_view key;  // "nproc_per_node"
  Kind kind;
  std::string doc;  // with its unit
};
std::vector<LaunchKey> launch_keys();

// A value that a flag or a variable gave.
struct Flag {
  std::string name;  // as people know it: "--nnodes", "PET_NNODES"
  std::string key;   // "nnodes", "env.NCCL_DEBUG"
  LaunchKey::Kind kind = LaunchKey::Kind::kText;
  std::string value;         // as it stands; a list's items have commas between, and ",," is a comma in one
  bool is_variable = false;  // of the environment
};

// `number` of the source, from 1.
void apply_flag(Node& root, const Flag& flag, int number, Faults& faults);

}  // namespace trainer::spec
