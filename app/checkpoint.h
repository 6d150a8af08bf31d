#pragma once

#include <string>

namespace trainer::app {

struct CheckpointRequest {
  std::string action;  // "ls", "show", "verify"
  std::string path;    // of a checkpoint, of a directory of them, or of a run
};

// Throws trainer::Error.
int run_checkpoint(const CheckpointRequest& request);

}  // namespace trainer::app
