#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "spec/flags.h"
#include "spec/job_spec.h"

namespace trainer::app {

// What says how workers are started: a flag for every key of the job's launch section, and torchrun's others.
// Flags have torchrun's names and meanings, with dashes or underscores; each is the variable PET_<NAME> too. A
// flag beats a variable, a variable beats the job file.
struct LaunchFlags {
  std::vector<spec::Flag> said;
  std::vector<spec::Flag> defaults;  // of the command, under the variables
  std::string rdzv_backend, rdzv_conf, start_method, event_log_handler, logs_specs;
  double monitor_interval = 0;
  bool standalone = false;
};

void add_launch_flags(CLI::App& command, LaunchFlags& flags);

// A job and how to start it: what `run` and `check` are given.
struct JobFlags {
  std::string job_path;
  std::vector<std::string> overrides;  // --set
  LaunchFlags launch;
};

void add_job_flags(CLI::App& command, JobFlags& flags);

// The job's spec, its launch section as flags, PET_* variables and the scheduler's have it. Throws SpecError.
spec::JobSpec load_spec(const JobFlags& flags);
// The same of the launch section alone.
spec::Launch load_launch(const LaunchFlags& flags);

// Whether torchrun's PET_<NAME> is 1; it is 0, empty or not set otherwise. Throws SpecError.
bool is_switched_on(const std::string& name);

}  // namespace trainer::app
