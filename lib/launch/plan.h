#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "job/world.h"
#include "spec/job_spec.h"

namespace trainer::launch {

// Everything that an agent needs to run its node's workers.
struct WorkerPlan {
  std::vector<std::string> argv;  // of every worker; argv[0] is looked up in PATH when it has no slash
  std::map<std::string, std::string> env;  // over the inherited environment, under the contract's variables
  int64_t nproc = 1;                       // workers of this node
  int64_t nnodes = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;  // 0: a free one (one node only)
  // The agent listens on master_port at once and hands the socket to rank 0 (TRAINER_STORE_FD), so that the
  // port can't be taken in between. False for programs that bind MASTER_PORT themselves, as PyTorch's env://
  // rendezvous does.
  bool pass_store_socket = true;
  double grace_s = 10;  // from SIGTERM to SIGKILL
  int64_t cores = 1;    // usable by all workers of this node together
  int64_t threads_per_worker =
      0;  // OMP_NUM_THREADS; 0: an equal share of the cores, unless the variable is set
  std::string run_id = "none";
  std::filesystem::path log_dir;  // of worker_log_dir()
};

// Overrides by PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT and
// PET_RDZV_ENDPOINT. Call it after the job file and before command-line flags: flag beats environment beats
// YAML. Throws SpecError.
void apply_environment(spec::Launch& launch);

// Checks and resolves the launch section on this machine. nproc_per_node: "gpu" is one worker a GPU, "cpu"
// one a usable core, "auto" one a GPU or, without GPUs, one in all. launch.env beats the inherited
// environment. Throws SpecError naming the key.
WorkerPlan plan_workers(const spec::Launch& launch, const spec::Hardware& hardware,
                        const hardware::Machine& machine, std::vector<std::string> argv,
                        std::filesystem::path log_dir);

// The world of the plan's workers, as rank 0 sees it.
World planned_world(const WorkerPlan& plan);

// argv for re-executing this program: its own path, then `arguments`.
std::vector<std::string> self_command(std::vector<std::string> arguments);

// The whole environment of a worker: inherited, then plan.env, then the contract with workers (torchrun's
// variables and TRAINER_WORKER=1, which alone makes a process of this program a worker).
std::map<std::string, std::string> worker_environment(const WorkerPlan& plan, int64_t local_rank,
                                                      int64_t master_port);

// <log_dir>/attempt_0/<local rank>, of stdout.log, stderr.log and error.json. With several nodes, which may
// share the file system, <log_dir>/node_<node rank>/attempt_0/<local rank>.
std::filesystem::path worker_log_dir(const WorkerPlan& plan, int64_t local_rank);

}  // namespace trainer::launch
