#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace trainer::checkpoint {

// Runs `work` on every rank; returns what it returned on each, in order of rank, to all. Where it fails on any, all throw
// CheckpointError with the first such rank's message. A collective, and so a barrier; `work` may have none in it.
std::vector<std::string> on_all_ranks(dist::Communicator& communicator,
                                      const std::function<std::string()>& work);
// The same with the main rank alone working.
std::string on_main_rank(dist::Communicator& communicator, const std::function<std::string()>& work);

}  // namespace trainer::checkpoint
