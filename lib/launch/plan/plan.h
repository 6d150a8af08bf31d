#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "job/world.h"
#include "net/endpoint.h"
#include "spec/job_spec.h"

namespace trainer::launch {

using net::Endpoint;

// Which of a worker's two streams: standard output 1, standard error 2, both 3 (torchrun's numbers).
using Streams = int;

// Everything that an agent needs to run its node's workers, the same for all attempts.
struct WorkerPlan {
  bool is_fixed() const { return node_rank >= 0; }  // every node has its rank from the beginning

  std::vector<std::string> argv;  // of every worker; argv[0] is looked up in PATH when it has no slash
  std::map<std::string, std::string> env;  // over the inherited environment, under the contract's variables
  bool is_trainer = true;                  // the workers are this program: their exit codes have our meanings
  int64_t nproc = 1;                       // workers of this node
  hardware::Machine machine;
  bool uses_gpus = false;            // the workers, one each
  std::filesystem::path output_dir;  // of the job; empty: it has none
  std::string run_id = "none";
  std::string role = "default";  // torchrun's ROLE_NAME
  std::string token;             // of the control plane's handshake
  std::string spec_hash;         // nodes that differ in it do not belong together

  // Nodes. Fixed: as many as min_nodes = max_nodes, each told its node_rank, meeting at endpoints[0], which
  // node 0 hosts. Elastic: node_rank -1, the endpoint's host is whoever has its address.
  int64_t min_nodes = 1;
  int64_t max_nodes = 1;
  int64_t node_rank = 0;
  std::vector<Endpoint> endpoints;  // empty: one node; a second one takes over when the first is lost
  std::string local_addr;           // this node's address for its peers; empty: of the route to the endpoint
  std::string interface;            // of the control plane, and of Gloo and NCCL; empty: by the route
  spec::Network network = spec::Network::kAuto;
  bool preflight = true;
  bool preflight_only = false;  // and then end
  double join_timeout_s = 600;  // until min_nodes are there
  double last_call_s = 5;       // from min_nodes on, for more
  double heartbeat_s = 1;
  double heartbeat_timeout_s = 4;  // a node that was not heard for so long is lost

  // Failures.
  int64_t max_restarts = 0;                   // of the job, whichever node's worker fails
  int64_t max_restarts_without_progress = 3;  // in a row, of workers that tell their step
  double hang_timeout_s = 0;                  // without a sign of progress; 0: learned; < 0: not watched
  double straggler_factor = 1.5;              // of the median rank's time; 0: not watched
  double straggler_interval_s = 60;

  // Ends.
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  double grace_s = 10;           // from SIGTERM to SIGKILL
  double preempt_grace_s = 60;   // from asking the workers to save and stop, to SIGTERM
  std::string preempt_file;      // stop in that way when it appears
  double stop_before_end_s = 0;  // stop in that way so long before SLURM_JOB_END_TIME; 0: do not

  // Output.
  std::filesystem::path log_dir;     // of worker_log_dir()
  bool log_dir_is_shared = true;     // by nodes of one file system: each has a directory of its own in it
  bool log_to_files = true;          // false: log_dir holds error files alone
  std::vector<Streams> file_only;    // by local rank: streams that are not shown on the console
  std::vector<Streams> files;        // by local rank: streams that are written to files
  std::vector<int64_t> shown_ranks;  // local ranks whose lines the console shows; empty: all
  int64_t log_max_bytes = 0;         // of one file before it is rotated; 0: no bound
  std::vector<std::string> stdout_filters;  // lines with one of them go to filtered_log() too
  std::vector<std::string> stderr_filters;

  // Placement.
  int64_t cores = 1;  // usable by all workers of this node together
  int64_t threads_per_worker =
      0;  // OMP_NUM_THREADS; 0: an equal share of the cores, unless the variable is set
  bool virtual_local_rank = false;  // every worker has LOCAL_RANK 0 and sees its own GPU alone
  spec::NumaBinding numa_binding = spec::NumaBinding::kAuto;
};

// What one attempt gives to a node.
struct Assignment {
  int64_t attempt = 0;  // from 0: how often the workers were started before
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  int64_t first_rank = 0;  // of the node's local rank 0
  int64_t world_size = 1;
  int64_t restarts = 0;                   // of max_restarts, used so far
  std::string master_addr = "127.0.0.1";  // of the attempt's store
  int64_t master_port = 0;
};

// Fills in what neither flags nor the job file say of nodes, from what schedulers set:
//   nnodes     SKYPILOT_NUM_NODES; the nodes of an srun step with one task on each; else 1
//   node_rank  NODE_RANK, SKYPILOT_NODE_RANK, SLURM_NODEID (of such a step), JOB_COMPLETION_INDEX (Kubernetes)
//   master     MASTER_ADDR and MASTER_PORT, else the first of SKYPILOT_NODE_IPS or of the step's nodes
// The last two only for several nodes that meet at a fixed address. TRAINER_TOKEN beats the file's token.
// Throws SpecError naming the variable.
void ask_scheduler(spec::Launch& launch);

// Checks and resolves the launch section on this machine; ask_scheduler() came before. nproc_per_node: "gpu" is
// one worker a GPU, "cpu" one a usable core, "auto" one a GPU or, without GPUs, one in all. launch.env beats the
// inherited environment. `hardware`: none for a program that is not this one, whose devices are its own affair.
// The caller sets log_dir, log_dir_is_shared and spec_hash. Throws SpecError naming the key.
WorkerPlan plan_workers(const spec::Launch& launch, const std::optional<spec::Hardware>& hardware,
                        const hardware::Machine& machine, std::vector<std::string> argv);

// The world of the plan's workers, as rank 0 sees it.
World planned_world(const WorkerPlan& plan);

// argv for re-executing this program: its own path, then `arguments`.
std::vector<std::string> self_command(std::vector<std::string> arguments);

// This process's own environment.
std::map<std::string, std::string> inherited_environment();

// plan.argv with torchrun's macro ${local_rank} in its arguments replaced.
std::vector<std::string> worker_command(const WorkerPlan& plan, int64_t local_rank);

// The whole environment of a worker: inherited, then plan.env, then the contract with workers: torchrun's
// variables and, for workers that are this program, TRAINER_WORKER=1.
std::map<std::string, std::string> worker_environment(const WorkerPlan& plan, const Assignment& assignment,
                                                      int64_t local_rank);

// <log_dir>/attempt_<n>/<local rank>, of stdout.log, stderr.log and error.json. In a shared directory
// <log_dir>/node_<node rank>/attempt_<n>/<local rank>.
std::filesystem::path worker_log_dir(const WorkerPlan& plan, const Assignment& assignment,
                                     int64_t local_rank);
// <log_dir>/attempt_<n>/filtered_stdout.log of all workers of the node; fd 2: filtered_stderr.log.
std::filesystem::path filtered_log(const WorkerPlan& plan, const Assignment& assignment, int fd);

// What a worker's lines begin with on the console: "[node:rank] ", from the second attempt on
// "[node:rank#attempt] "; empty for a single worker.
std::string line_prefix(const Assignment& assignment, int64_t local_rank);

}  // namespace trainer::launch
