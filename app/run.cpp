// trainer run, eval and predict: an agent that spawns this program again as workers, or one of those workers.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "core/file.h"
#include "hardware/machine.h"
#include "job/job.h"
#include "job/task.h"
#include "job/world.h"
#include "launch/agent.h"
#include "launch_flags.h"
#include "libtorch.h"
#include "log_directory.h"
#include "spec/load.h"
#include "torch_library.h"

namespace trainer::app {
namespace {

using Kind = Task::Kind;

// Nodes that differ in it do not belong together: all that is said of the job, but for how each node starts it.
std::string fingerprint(spec::JobSpec spec, const Task& task) {
  spec.launch = {};
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const unsigned char c : spec::to_yaml(spec).append(name(task.kind))) hash = (hash ^ c) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

int run_as_agent(const JobFlags& flags, Task task) {
  spec::JobSpec spec = load_spec(flags);
  if (task.kind != Kind::kTrain) spec = for_saved_model(std::move(spec), task);
  std::vector<std::string> command = {std::string(name(task.kind)), flags.job_path};
  for (const std::string& override : flags.overrides) command.insert(command.end(), {"--set", override});
  // So that the job.yaml that a worker leaves is the job that ran, flags and PET_* variables included.
  command.insert(command.end(), {"--set", fmt::format("launch.nproc_per_node={}", spec.launch.nproc_per_node),
                                 "--set", fmt::format("launch.nnodes={}", *spec.launch.nnodes)});
  if (!task.model.empty()) command.insert(command.end(), {"--model", task.model.string()});
  if (!task.output.empty())
    command.insert(command.end(),
                   {task.kind == Kind::kPredict ? "--output" : "--json", task.output.string()});
  const hardware::Machine machine = hardware::detect();
  launch::WorkerPlan plan =
      launch::plan_workers(spec.launch, spec.hardware, machine, launch::self_command(command));
  plan.spec_hash = fingerprint(spec, task);

  // Faults of the job are found here once, before any worker starts.
  const World world = launch::planned_world(plan);
  const Job job = resolve(spec, world, static_cast<int64_t>(machine.gpus.size()));
  check_files(job);
  if (world.num_nodes == 1) check_output(task);  // of several it is the main rank's node that writes
  plan.log_dir = job.output_dir / "logs";
  if (task.kind != Kind::kTrain) plan.log_dir /= name(task.kind);
  // What it locks: a model may be looked at while its job goes on.
  plan.output_dir = task.kind == Kind::kTrain ? job.output_dir : plan.log_dir;
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

int run_task(const JobFlags& flags, const Task& task) {
  const std::optional<World> world = world_from_environment(speaks_of_nodes(flags.launch));
  if (!world) return run_as_agent(flags, task);
  return run_torch_command({"worker", flags.job_path, flags.overrides, *world, task});
}

struct TaskFlags {
  JobFlags job;
  Task task;
};

std::shared_ptr<TaskFlags> add_task(CLI::App& command, Kind kind) {
  auto flags = std::make_shared<TaskFlags>();
  flags->task.kind = kind;
  add_job_flags(command, flags->job);
  if (kind == Kind::kTrain) return flags;
  command.add_option(
      "--model", flags->task.model,
      "Saved model, its weights and preprocessing; default: the job's best, else its final one");
  command
      .add_option_function<std::string>(
          "--data",
          [flags = flags.get()](const std::string& path) {
            const std::string quoted = nlohmann::json(path).dump();
            flags->job.overrides.insert(flags->job.overrides.end(),
                                        {"data.validation.path=" + quoted, "data.validation_fraction=0"});
          },
          "File instead of the job's data.validation, of the same columns")
      ->type_name("PATH");
  return flags;
}

}  // namespace

void add_run(CLI::App& cli, std::function<int()>& command) {
  auto* run = cli.add_subcommand("run", "Train: spawn one worker per GPU (or CPU workers) and run the job");
  const auto flags = add_task(*run, Kind::kTrain);
  auto resume = std::make_shared<std::string>();
  run->add_option(
      "--resume", *resume,
      "Where training begins: auto: at the newest whole checkpoint in the job's directory, if there is one; "
      "never: at the first step; or the directory of a checkpoint or of a run (checkpoint.resume)");
  run->callback([&command, flags, resume] {
    command = [flags, resume] {
      if (!resume->empty()) flags->job.overrides.push_back("checkpoint.resume=" + *resume);
      return run_task(flags->job, flags->task);
    };
  });
}

void add_eval(CLI::App& cli, std::function<int()>& command) {
  auto* eval = cli.add_subcommand("eval", "Judge a saved model by the job's evaluation.metrics");
  const auto flags = add_task(*eval, Kind::kEvaluate);
  eval->add_option("--json", flags->task.output,
                   "File of what was found; default: evaluation.json in the job's output directory");
  eval->callback([&command, flags] { command = [flags] { return run_task(flags->job, flags->task); }; });
}

void add_predict(CLI::App& cli, std::function<int()>& command) {
  auto* predict = cli.add_subcommand("predict", "Write a saved model's prediction for each row of a file");
  const auto flags = add_task(*predict, Kind::kPredict);
  predict->add_option("--output", flags->task.output, "File to write, .csv or .parquet")->required();
  predict->callback([&command, flags] { command = [flags] { return run_task(flags->job, flags->task); }; });
}

}  // namespace trainer::app
