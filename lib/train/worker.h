#pragma once

#include "core/error.h"
#include "job/task.h"
#include "job/world.h"
#include "report/progress.h"
#include "spec/job_spec.h"

namespace trainer::train {

// Runs one rank of a job's task from start to end, and says in `progress` how far it is. kPreempted: a request on that page, or
// SIGTERM where the page has no agent, ended it early, on all ranks at the same step. Throws trainer::Error.
ExitCode run_worker(const spec::JobSpec& spec, const World& world, Task task, report::ProgressPage& progress);

}  // namespace trainer::train
