#pragma once

#include <cstdint>

#include "job/world.h"
#include "spec/job_spec.h"

namespace trainer::train {

// Runs one rank of a job from start to end. `step` follows the optimizer steps done, for whoever reports a
// failure. Throws trainer::Error.
void run_worker(const spec::JobSpec& spec, const World& world, int64_t& step);

}  // namespace trainer::train
