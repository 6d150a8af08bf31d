// trainer run: an agent that spawns this program again as workers, or one of those workers.

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "core/file.h"
#include "hardware/machine.h"
#include "job/job.h"
#include "job/world.h"
#include "launch/agent.h"
#include "spec/load.h"
#include "torch_library.h"

namespace trainer::app {
namespace {

// Launch flags have torchrun's names; each, when given, beats PET_* variables and the job file.
struct Options {
  std::string job_path;
  std::vector<std::string> overrides;
  std::optional<std::string> nproc_per_node, master_addr;
  std::optional<int64_t> nnodes, node_rank, master_port;
  bool standalone = false;
};

template <class T, class U>
void override_with(T& value, const std::optional<U>& flag) {
  if (flag) value = *flag;
}

int run_as_agent(const Options& options) {
  spec::JobSpec spec = spec::load(options.job_path, options.overrides);
  spec::Launch& launch = spec.launch;
  launch::apply_environment(launch);
  override_with(launch.nproc_per_node, options.nproc_per_node);
  override_with(launch.nnodes, options.nnodes);
  override_with(launch.node_rank, options.node_rank);
  override_with(launch.master_addr, options.master_addr);
  override_with(launch.master_port, options.master_port);
  if (options.standalone) {
    launch.nnodes = 1;
    launch.node_rank = 0;
    launch.master_addr = "127.0.0.1";
    launch.master_port = 0;
  }

  std::vector<std::string> command = {"run", options.job_path};
  for (const std::string& override : options.overrides) command.insert(command.end(), {"--set", override});
  const hardware::Machine machine = hardware::detect();
  launch::WorkerPlan plan =
      launch::plan_workers(launch, spec.hardware, machine, launch::self_command(command), "");

  // Faults of the job are found here once, before any worker starts.
  const Job job = resolve(spec, launch::planned_world(plan), static_cast<int64_t>(machine.gpus.size()));
  check_files(job);
  plan.log_dir = job.output_dir / "logs";
  std::optional<DirectoryLock> lock;  // node 0's: the other nodes may share its file system
  if (plan.node_rank == 0) lock.emplace(job.output_dir);
  return launch::run_agent(plan);
}

}  // namespace

void add_run(CLI::App& cli, std::function<int()>& command) {
  auto* run = cli.add_subcommand("run", "Train: spawn one worker per GPU (or CPU workers) and run the job");
  auto options = std::make_shared<Options>();
  run->add_option("job", options->job_path, "Job spec (YAML)")->required();
  run->add_option("--set", options->overrides, "Override a key of the job: key.path=value")
      ->allow_extra_args(false);
  run->add_option("--nproc-per-node,--nproc_per_node", options->nproc_per_node,
                  "Workers per node: N, auto, gpu or cpu");
  run->add_option("--nnodes", options->nnodes, "Nodes");
  run->add_option("--node-rank,--node_rank", options->node_rank, "Rank of this node");
  run->add_option("--master-addr,--master_addr", options->master_addr, "Address of node 0");
  run->add_option("--master-port,--master_port", options->master_port, "Port on node 0");
  run->add_flag("--standalone", options->standalone, "One node, a free port");
  run->callback([&command, options] {
    command = [options] {
      const std::optional<World> world = world_from_environment();
      if (!world) return run_as_agent(*options);
      ::unsetenv("TRAINER_WORKER");  // programs that this worker starts are no workers
      return run_torch_command({"worker", options->job_path, options->overrides, *world});
    };
  });
}

}  // namespace trainer::app
