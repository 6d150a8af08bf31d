#pragma once

#include "launch/plan.h"

namespace trainer::launch {

// Runs this node's workers to their end: spawns them, merges their output, and when one fails or the agent is
// told to stop (SIGINT, SIGTERM, SIGHUP, SIGQUIT) ends the others: SIGTERM, after plan.grace_s SIGKILL; a
// second SIGINT kills at once. Prints the first failure last. Returns the program's exit code: 0, the failed
// worker's own, 128+signal of a worker or of the agent, 75 when the stopped workers all ended with it.
//
// No worker, nor any process that one left behind, outlives the call (children that the caller had before are
// left alone). When the agent itself is killed the kernel kills its workers, but not their children: only a
// worker can see to those. Call it on the main thread, before others start: signals are blocked for the
// calling thread only, and workers die with the thread that spawned them.
//
// Throws SpecError (program, log directory, resources) or DistributedError (port) when the workers can't be
// started.
int run_agent(const WorkerPlan& plan);

}  // namespace trainer::launch
