#pragma once

#include "launch/plan/plan.h"

namespace trainer::launch {

struct AgentResult {
  int code = 0;               // the program's exit code
  bool has_shown_all = true;  // false: the console's reader had stalled, and some lines are in the logs only
};

// Takes this node's part in a job to the job's end: finds or hosts the coordinator, runs workers as it says, merges their
// output, and passes on what this node is told (SIGINT, SIGTERM, SIGHUP, SIGQUIT: save and stop; a second SIGINT: kill;
// SIGUSR1: save). Prints the job's first failure last. The exit code is 0, the failed worker's own,
// 128+signal of a worker or of the agent, 75 when the workers saved and stopped, 4 when nodes were lost.
//
// No worker, nor any process that one left behind, outlives the call (children that the caller had before are
// left alone), nor this process, however it ends. Call it on the main thread, once. Throws SpecError when a worker
// cannot be started.
AgentResult run_agent(const WorkerPlan& plan);

}  // namespace trainer::launch
