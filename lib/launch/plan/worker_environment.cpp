// What a worker is started with.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "launch/plan/plan.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

// The `index`-th device of a CUDA_VISIBLE_DEVICES list; the list itself when nothing restricts.
std::string device_at(const std::map<std::string, std::string>& env, int64_t index) {
  const auto found = env.find("CUDA_VISIBLE_DEVICES");
  if (found == env.end()) return std::to_string(index);
  std::string_view list = found->second;
  for (; index > 0; --index) list.remove_prefix(std::min(list.find(','), list.size() - 1) + 1);
  const std::string_view item = list.substr(0, list.find(','));
  const size_t first = std::min(item.find_first_not_of(" \t"), item.size());
  return std::string(item.substr(first, item.find_last_not_of(" \t") + 1 - first));
}

fs::path attempt_dir(const WorkerPlan& plan, const Assignment& assignment) {
  const fs::path node =
      plan.log_dir_is_shared && plan.max_nodes > 1 ? fmt::format("node_{}", assignment.node_rank) : "";
  return plan.log_dir / node / fmt::format("attempt_{}", assignment.attempt);
}

// "SIGTERM,SIGINT"
std::string signal_names(const std::vector<int>& signals) {
  std::string names;
  for (const int signal : signals)
    names += fmt::format("{}SIG{}", names.empty() ? "" : ",", ::sigabbrev_np(signal));
  return names;
}

}  // namespace

fs::path worker_log_dir(const WorkerPlan& plan, const Assignment& assignment, int64_t local_rank) {
  return attempt_dir(plan, assignment) / std::to_string(local_rank);
}

fs::path filtered_log(const WorkerPlan& plan, const Assignment& assignment, int fd) {
  return attempt_dir(plan, assignment) / (fd == 1 ? "filtered_stdout.log" : "filtered_stderr.log");
}

std::string line_prefix(const Assignment& assignment, int64_t local_rank) {
  if (assignment.world_size == 1 && assignment.attempt == 0) return "";
  const std::string who = fmt::format("{}:{}", assignment.node_rank, assignment.first_rank + local_rank);
  return assignment.attempt == 0 ? fmt::format("[{}] ", who)
                                 : fmt::format("[{}#{}] ", who, assignment.attempt);
}

std::vector<std::string> worker_command(const WorkerPlan& plan, int64_t local_rank) {
  constexpr std::string_view kMacro = "${local_rank}";
  std::vector<std::string> command = plan.argv;
  if (plan.is_trainer) return command;
  const std::string value = std::to_string(local_rank);
  for (size_t i = 1; i < command.size(); ++i) {
    for (size_t at = 0; (at = command[i].find(kMacro, at)) != std::string::npos; at += value.size())
      command[i].replace(at, kMacro.size(), value);
  }
  return command;
}

std::map<std::string, std::string> inherited_environment() {
  std::map<std::string, std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

std::map<std::string, std::string> worker_environment(const WorkerPlan& plan, const Assignment& assignment,
                                                      int64_t local_rank) {
  std::map<std::string, std::string> env = inherited_environment();
  for (const auto& [name, value] : plan.env) env[name] = value;
  // Those of an outer launcher say nothing about this one; the token is the agents' secret.
  for (const char* name : {"TRAINER_WORKER", "TRAINER_STORE_FD", "TRAINER_PROGRESS_FD", "TRAINER_TOKEN"})
    env.erase(name);

  const auto set = [&](const char* name, const auto& value) { env[name] = fmt::format("{}", value); };
  const auto set_default = [&](const char* name, int64_t value) { env.emplace(name, std::to_string(value)); };
  const int64_t rank = assignment.first_rank + local_rank;
  const int64_t world_size = assignment.world_size;
  set("RANK", rank);
  set("WORLD_SIZE", world_size);
  set("LOCAL_RANK", plan.virtual_local_rank ? 0 : local_rank);
  set("LOCAL_WORLD_SIZE", plan.nproc);
  set("GROUP_RANK", assignment.node_rank);
  set("GROUP_WORLD_SIZE", assignment.num_nodes);
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", world_size);
  set("ROLE_NAME", plan.role);
  set("MASTER_ADDR", assignment.master_addr);
  set("MASTER_PORT", assignment.master_port);
  set("TORCHELASTIC_RESTART_COUNT", assignment.attempt);
  set("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts);
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("TORCHELASTIC_RUN_ID", plan.run_id);
  set("TORCHELASTIC_SIGNALS_TO_HANDLE", signal_names(plan.stop_signals));
  set("TORCHELASTIC_ERROR_FILE",
      fs::absolute(worker_log_dir(plan, assignment, local_rank) / "error.json").string());
  set_default("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  if (plan.virtual_local_rank) set("CUDA_VISIBLE_DEVICES", device_at(env, local_rank));
  if (plan.threads_per_worker > 0) set("OMP_NUM_THREADS", plan.threads_per_worker);
  set_default("OMP_NUM_THREADS", std::max<int64_t>(1, plan.cores / plan.nproc));
  if (!plan.is_trainer) return env;
  set("TRAINER_WORKER", 1);
  // OpenMP's threads wait by spinning for milliseconds, which slows jobs that share cores up to thirtyfold
  // (measured; two small GPTs at once ran half as fast with 10000). Short spins cost a job that has the cores to itself
  // little: a small GPT 2 to 6 % of its speed, a BERT nothing that can be measured.
  if (!env.contains("OMP_WAIT_POLICY")) set_default("GOMP_SPINCOUNT", 1000);
  return env;
}

}  // namespace trainer::launch
