#pragma once

#include <string>
#include <vector>

namespace trainer::checkpoint {

// A key whose value differs between two resolved specs.
struct Change {
  std::string key, before, after;  // as YAML; empty: not there
  bool breaks_resume;              // data order, model or optimizer state would be others
};

// Of specs as spec::to_yaml() writes them. Left out is what changes nothing of training: launch, logging, checkpoint,
// hardware, names and directories.
std::vector<Change> changes(const std::string& before, const std::string& after);

}  // namespace trainer::checkpoint
