// agent_driver [key=value...] -- PROGRAM [ARGS...]: runs any program under the agent, for the tests of
// lib/launch.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "launch/agent.h"

int main(int argc, char** argv) {
  // In place of the job's store, which these workers do not use.
  if (argc == 2 && std::string_view(argv[1]) == "__store") return ::pause();
  trainer::launch::WorkerPlan plan;
  plan.log_dir = "logs";
  plan.is_trainer = false;
  plan.numa_binding = trainer::spec::NumaBinding::kNone;
  int i = 1;
  for (; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string key = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (key == "trainer") plan.is_trainer = value != "0";
    if (key == "nproc") plan.nproc = std::stoll(value);
    if (key == "nnodes") plan.min_nodes = plan.max_nodes = std::stoll(value);
    if (key == "min_nodes") plan.min_nodes = std::stoll(value);
    if (key == "max_nodes") plan.max_nodes = std::stoll(value);
    if (key == "endpoints") plan.endpoints = trainer::net::parse_endpoints(value, key);
    if (key == "restarts") plan.max_restarts = std::stoll(value);
    if (key == "join_timeout_s") plan.join_timeout_s = std::stod(value);
    if (key == "last_call_s") plan.last_call_s = std::stod(value);
    if (key == "run_id") plan.run_id = value;
    if (key == "token") plan.token = value;
    if (key == "spec_hash") plan.spec_hash = value;
    if (key == "preempt_file") plan.preempt_file = value;
    if (key == "preempt_grace_s") plan.preempt_grace_s = std::stod(value);
    if (key == "hang_timeout_s") plan.hang_timeout_s = std::stod(value);
    if (key == "node_rank") plan.node_rank = std::stoll(value);
    if (key == "grace_s") plan.grace_s = std::stod(value);
    if (key == "port") plan.endpoints = {{"127.0.0.1", std::stoll(value)}};
    if (key == "stop_signal") plan.stop_signals.push_back(std::stoi(value));
    if (key == "cores") plan.cores = std::stoll(value);
    if (key == "log_to_files") plan.log_to_files = value != "0";
    if (key == "log_dir") plan.log_dir = value;
    if (key.rfind("env.", 0) == 0) plan.env[key.substr(4)] = value;
  }
  plan.argv.assign(argv + (i < argc ? i + 1 : i), argv + argc);
  try {
    return trainer::launch::run_agent(plan).code;
  } catch (const trainer::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.kind(), error.what());
    return static_cast<int>(error.code());
  }
}
