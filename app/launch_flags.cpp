#include "launch_flags.h"

#include "launch/plan.h"
#include "spec/load.h"

namespace trainer::app {
namespace {

template <class T, class U>
void override_with(T& value, const std::optional<U>& flag) {
  if (flag) value = *flag;
}

}  // namespace

void add_launch_flags(CLI::App& command, LaunchFlags& flags) {
  command.add_option("job", flags.job_path, "Job spec (YAML)")->required();
  command.add_option("--set", flags.overrides, "Override a key of the job: key.path=value")
      ->allow_extra_args(false);
  command.add_option("--nproc-per-node,--nproc_per_node", flags.nproc_per_node,
                     "Workers per node: N, auto, gpu or cpu");
  command.add_option("--nnodes", flags.nnodes, "Nodes");
  command.add_option("--node-rank,--node_rank", flags.node_rank, "Rank of this node");
  command.add_option("--master-addr,--master_addr", flags.master_addr, "Address of node 0");
  command.add_option("--master-port,--master_port", flags.master_port, "Port on node 0");
  command.add_flag("--standalone", flags.standalone, "One node, a free port");
}

spec::JobSpec load_spec(const LaunchFlags& flags) {
  spec::JobSpec spec = spec::load(flags.job_path, flags.overrides);
  spec::Launch& launch = spec.launch;
  launch::apply_environment(launch);
  override_with(launch.nproc_per_node, flags.nproc_per_node);
  override_with(launch.nnodes, flags.nnodes);
  override_with(launch.node_rank, flags.node_rank);
  override_with(launch.master_addr, flags.master_addr);
  override_with(launch.master_port, flags.master_port);
  if (flags.standalone) {
    launch.nnodes = 1;
    launch.node_rank = 0;
    launch.master_addr = "127.0.0.1";
    launch.master_port = 0;
  }
  return spec;
}

}  // namespace trainer::app
