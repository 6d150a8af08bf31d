#pragma once

#include <string>
#include <vector>

#include "job/world.h"

// The one boundary between the executable and libtrainer_torch.so.

namespace trainer::app {

struct TorchCommand {
  std::string name;  // "worker" or "check"
  std::string job_path;
  std::vector<std::string> overrides;  // --set
  World world;                         // this worker's; of check: the planned rank 0's
};

// Runs the command in libtrainer_torch.so, loaded now; returns the exit code. Throws trainer::Error.
int run_torch_command(const TorchCommand& command);

}  // namespace trainer::app

// What the library exports.
extern "C" int trainer_torch_main(const trainer::app::TorchCommand* command);
