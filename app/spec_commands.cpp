// trainer schema and trainer init: what is known of a job spec before there is a job.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "hardware/machine.h"
#include "launch/agent.h"
#include "launch/plan/plan.h"
#include "launch_flags.h"
#include "net/address.h"
#include "spec/load.h"
#include "spec/starter.h"
#include "torch_library.h"

namespace trainer::app {

void add_schema(CLI::App& cli, std::function<int()>& command) {
  auto* schema = cli.add_subcommand("schema", "Print the JSON Schema of job specs");
  schema->callback([&command] {
    command = [] {
      fmt::print("{}\n", spec::json_schema());
      return 0;
    };
  });
}

void add_init(CLI::App& cli, std::function<int()>& command) {
  auto* init = cli.add_subcommand("init", "Print a commented starter job spec");
  auto kind = std::make_shared<std::string>("bert");
  init->add_option("kind", *kind, "bert or gpt")->required();
  init->callback([&command, kind] {
    command = [kind] {
      fmt::print("{}", spec::starter(*kind));
      return 0;
    };
  });
}

void add_check(CLI::App& cli, std::function<int()>& command) {
  auto* check = cli.add_subcommand(
      "check",
      "Validate a job and print what it resolves to, or with --preflight look at its nodes; trains nothing");
  auto flags = std::make_shared<JobFlags>();
  add_job_flags(*check, *flags);
  check->callback([&command, flags] {
    command = [flags] {
      spec::JobSpec spec = load_spec(*flags);
      launch::WorkerPlan plan = launch::plan_workers(spec.launch, spec.hardware, hardware::detect(), {});
      // With --preflight: only look at this node and, with several nodes (start it on all), at whether each reaches each.
      const auto is_preflight = [](const spec::Flag& flag) {
        return flag.key == "preflight" && flag.value == "true";
      };
      if (std::any_of(flags->launch.said.begin(), flags->launch.said.end(), is_preflight)) {
        plan.preflight = plan.preflight_only = true;
        plan.output_dir = spec.job.output_dir.empty() ? "runs/" + spec.job.name : spec.job.output_dir;
        plan.log_dir = plan.output_dir / "logs";
        return launch::run_agent(plan).code;
      }
      if (!plan.interface.empty()) static_cast<void>(net::address_of_interface(plan.interface));
      return run_torch_command({"check", flags->job_path, flags->overrides, launch::planned_world(plan)});
    };
  });
}

}  // namespace trainer::app
