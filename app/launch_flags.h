#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::app {

// What `run` and `check` are given: a job, and which workers to start it with. Launch flags have torchrun's
// names; each, when given, beats PET_* variables and the job file.
struct LaunchFlags {
  std::string job_path;
  std::vector<std::string> overrides;  // --set
  std::optional<std::string> nproc_per_node, master_addr;
  std::optional<int64_t> nnodes, node_rank, master_port;
  bool standalone = false;
};

void add_launch_flags(CLI::App& command, LaunchFlags& flags);

// The job's spec, its launch section as the environment and the flags have it. Throws SpecError.
spec::JobSpec load_spec(const LaunchFlags& flags);

}  // namespace trainer::app
