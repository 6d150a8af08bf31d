// trainer run: an agent that spawns this program again as workers, or one of those workers.

#include <fmt/format.h>

#include <algorithm>
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
#include "launch_flags.h"
#include "libtorch.h"
#include "log_directory.h"
#include "spec/load.h"
#include "torch_library.h"

namespace trainer::app {
namespace {

// Nodes that differ in it do not belong together: all that is said of the job, but for how each node starts it.
std::string fingerprint(spec::JobSpec spec) {
  spec.launch = {};
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const unsigned char c : spec::to_yaml(spec)) hash = (hash ^ c) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

int run_as_agent(const JobFlags& flags) {
  spec::JobSpec spec = load_spec(flags);
  std::vector<std::string> command = {"run", flags.job_path};
  for (const std::string& override : flags.overrides) command.insert(command.end(), {"--set", override});
  // So that the job.yaml that a worker leaves is the job that ran, flags and PET_* variables included.
  command.insert(command.end(), {"--set", fmt::format("launch.nproc_per_node={}", spec.launch.nproc_per_node),
                                 "--set", fmt::format("launch.nnodes={}", *spec.launch.nnodes)});
  const hardware::Machine machine = hardware::detect();
  launch::WorkerPlan plan =
      launch::plan_workers(spec.launch, spec.hardware, machine, launch::self_command(command));
  plan.spec_hash = fingerprint(spec);

  // Faults of the job are found here once, before any worker starts.
  const Job job = resolve(spec, launch::planned_world(plan), static_cast<int64_t>(machine.gpus.size()));
  check_files(job);
  plan.output_dir = job.output_dir;
  plan.log_dir = job.output_dir / "logs";
  find_libtorch_for_workers();
  plan.log_dir_is_shared = spec.launch.log_dir.empty() || !plan.log_to_files;
  if (!plan.log_dir_is_shared) plan.log_dir = make_log_directory(spec.launch.log_dir, spec.launch.run_id);
  return launch::run_agent(plan).code;
}

// Of nodes the command line tells agents alone, whoever started this process.
bool speaks_of_nodes(const LaunchFlags& flags) {
  return std::any_of(flags.said.begin(), flags.said.end(), [](const spec::Flag& flag) {
    return flag.key == "nnodes" || flag.key == "node_rank" || flag.key == "rdzv_endpoint";
  });
}

}  // namespace

void add_run(CLI::App& cli, std::function<int()>& command) {
  auto* run = cli.add_subcommand("run", "Train: spawn one worker per GPU (or CPU workers) and run the job");
  auto flags = std::make_shared<JobFlags>();
  add_job_flags(*run, *flags);
  run->callback([&command, flags] {
    command = [flags] {
      const std::optional<World> world = world_from_environment(speaks_of_nodes(flags->launch));
      if (!world) return run_as_agent(*flags);
      return run_torch_command({"worker", flags->job_path, flags->overrides, *world});
    };
  });
}

}  // namespace trainer::app
