#include "launch/plan.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxWorkers = 1024;  // a node has no more; the agent holds six descriptors a worker

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t integer_variable(const char* name, std::string_view text) {
  const std::optional<int64_t> value = to_integer(text);
  if (!value) fail<SpecError>("{}: got \"{}\"; expected an integer", name, text);
  return *value;
}

// "2" or torchrun's "2:2".
int64_t nnodes_variable(std::string_view text) {
  const size_t colon = text.find(':');
  const int64_t nnodes = integer_variable("PET_NNODES", text.substr(0, colon));
  if (colon != std::string_view::npos && integer_variable("PET_NNODES", text.substr(colon + 1)) != nnodes) {
    fail<SpecError>("PET_NNODES: got \"{}\"; expected one number of nodes (elastic ranges are not supported)",
                    text);
  }
  return nnodes;
}

// "host", "host:port", "[ipv6]:port".
void apply_endpoint(std::string_view endpoint, spec::Launch& launch) {
  const size_t colon = endpoint.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && endpoint.substr(colon).find(']') == std::string_view::npos;
  std::string_view host = endpoint.substr(0, has_port ? colon : endpoint.size());
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  launch.master_addr = host;
  if (has_port) launch.master_port = integer_variable("PET_RDZV_ENDPOINT", endpoint.substr(colon + 1));
}

int64_t resolve_nproc(const spec::Launch& launch, const spec::Hardware& hardware,
                      const hardware::Machine& machine) {
  const auto gpus = static_cast<int64_t>(machine.gpus.size());
  const std::string& text = launch.nproc_per_node;
  const bool wants_cuda = hardware.device == spec::DeviceChoice::kCuda || text == "gpu";
  if (wants_cuda && gpus == 0) {
    fail<SpecError>(
        "{}: GPUs are asked for, but this machine shows none\n  hint: see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or set hardware.device: cpu",
        text == "gpu" ? "launch.nproc_per_node" : "hardware.device");
  }
  if (text == "gpu" && hardware.device == spec::DeviceChoice::kCpu) {
    fail<SpecError>(
        "launch.nproc_per_node: got \"gpu\" with hardware.device: cpu; expected \"cpu\", \"auto\" or a "
        "number");
  }
  const bool uses_cuda = hardware.device != spec::DeviceChoice::kCpu && gpus > 0;
  if (text == "gpu") return gpus;
  if (text == "cpu") return machine.cores;
  if (text == "auto") return uses_cuda ? gpus : 1;
  const std::optional<int64_t> number = to_integer(text);
  if (!number || *number < 1 || *number > kMaxWorkers) {
    fail<SpecError>(
        "launch.nproc_per_node: got \"{}\"; expected \"auto\", \"gpu\", \"cpu\" or a number from 1 to {}",
        text, kMaxWorkers);
  }
  if (uses_cuda && *number > gpus) {
    fail<SpecError>(
        "launch.nproc_per_node: got {}, but this machine shows {} GPU{}\n  hint: set hardware.device: cpu, "
        "or "
        "see CUDA_VISIBLE_DEVICES",
        *number, gpus, gpus == 1 ? "" : "s");
  }
  return *number;
}

const char* const kReserved[] = {"RANK",       "WORLD_SIZE",       "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                 "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",  "ROLE_WORLD_SIZE",
                                 "ROLE_NAME",  "MASTER_ADDR",      "MASTER_PORT"};

void check_env(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) {
    const bool reserved = std::count(std::begin(kReserved), std::end(kReserved), name) > 0 ||
                          name.rfind("TORCHELASTIC_", 0) == 0 || name.rfind("TRAINER_", 0) == 0;
    if (reserved) fail<SpecError>("launch.env.{}: the launcher sets this variable itself; remove it", name);
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos) {
      fail<SpecError>("launch.env: got \"{}\"; expected the name of an environment variable", name);
    }
  }
}

}  // namespace

void apply_environment(spec::Launch& launch) {
  if (const char* v = std::getenv("PET_NPROC_PER_NODE")) launch.nproc_per_node = v;
  if (const char* v = std::getenv("PET_NNODES")) launch.nnodes = nnodes_variable(v);
  if (const char* v = std::getenv("PET_NODE_RANK")) launch.node_rank = integer_variable("PET_NODE_RANK", v);
  if (const char* v = std::getenv("PET_MASTER_ADDR")) launch.master_addr = v;
  if (const char* v = std::getenv("PET_MASTER_PORT"))
    launch.master_port = integer_variable("PET_MASTER_PORT", v);
  if (const char* v = std::getenv("PET_RDZV_ENDPOINT"); v != nullptr && *v != '\0') apply_endpoint(v, launch);
}

WorkerPlan plan_workers(const spec::Launch& launch, const spec::Hardware& hardware,
                        const hardware::Machine& machine, std::vector<std::string> argv, fs::path log_dir) {
  if (launch.nnodes < 1) fail<SpecError>("launch.nnodes: got {}; expected a number > 0", launch.nnodes);
  if (launch.node_rank < 0 || launch.node_rank >= launch.nnodes) {
    fail<SpecError>("launch.node_rank: got {}; expected 0 to {} (launch.nnodes is {})", launch.node_rank,
                    launch.nnodes - 1, launch.nnodes);
  }
  if (launch.master_port < 0 || launch.master_port > 65535) {
    fail<SpecError>("launch.master_port: got {}; expected 0 to 65535", launch.master_port);
  }
  if (launch.nnodes > 1 && launch.master_port == 0) {
    fail<SpecError>(
        "launch.master_port: got 0 with {} nodes; expected a port that is free on node 0, the same on every "
        "node",
        launch.nnodes);
  }
  check_env(launch.env);
  WorkerPlan plan;
  plan.argv = std::move(argv);
  plan.env = launch.env;
  plan.nproc = resolve_nproc(launch, hardware, machine);
  plan.min_nodes = plan.max_nodes = launch.nnodes;
  plan.node_rank = launch.node_rank;
  if (launch.nnodes > 1) plan.endpoints = {{launch.master_addr, launch.master_port}};
  plan.grace_s = launch.grace_s;
  plan.cores = machine.cores;
  plan.threads_per_worker = hardware.threads_per_worker;
  plan.log_dir = std::move(log_dir);
  return plan;
}

std::vector<std::string> self_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), fs::read_symlink("/proc/self/exe").string());
  return arguments;
}

fs::path worker_log_dir(const WorkerPlan& plan, const Assignment& assignment, int64_t local_rank) {
  const fs::path node = plan.max_nodes > 1 ? fmt::format("node_{}", assignment.node_rank) : "";
  return plan.log_dir / node / fmt::format("attempt_{}", assignment.attempt) / std::to_string(local_rank);
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
  // Those of an outer launcher say nothing about this one.
  env.erase("TRAINER_STORE_FD");

  const auto set = [&](const char* name, const auto& value) { env[name] = fmt::format("{}", value); };
  const auto set_default = [&](const char* name, int64_t value) { env.emplace(name, std::to_string(value)); };
  const int64_t rank = assignment.first_rank + local_rank;
  const int64_t world_size = assignment.world_size;
  set("RANK", rank);
  set("WORLD_SIZE", world_size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", plan.nproc);
  set("GROUP_RANK", assignment.node_rank);
  set("GROUP_WORLD_SIZE", assignment.num_nodes);
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", world_size);
  set("ROLE_NAME", "default");
  set("MASTER_ADDR", assignment.master_addr);
  set("MASTER_PORT", assignment.master_port);
  set("TORCHELASTIC_RESTART_COUNT", assignment.attempt);
  set("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts);
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("TORCHELASTIC_RUN_ID", plan.run_id);
  set("TORCHELASTIC_ERROR_FILE", (worker_log_dir(plan, assignment, local_rank) / "error.json").string());
  set("TRAINER_WORKER", 1);
  set_default("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  if (plan.threads_per_worker > 0) set("OMP_NUM_THREADS", plan.threads_per_worker);
  set_default("OMP_NUM_THREADS", std::max<int64_t>(1, plan.cores / plan.nproc));
  // OpenMP's threads wait by spinning for milliseconds, which slows jobs that share cores up to thirtyfold
  // (measured); short spins cost a job that has the cores to itself nothing that can be measured.
  if (!env.contains("OMP_WAIT_POLICY")) set_default("GOMP_SPINCOUNT", 1000);
  return env;
}

World planned_world(const WorkerPlan& plan) {
  World world;
  world.size = plan.nproc * plan.max_nodes;
  world.local_size = plan.nproc;
  world.num_nodes = plan.max_nodes;
  if (!plan.endpoints.empty()) {
    world.master_addr = plan.endpoints[0].host;
    world.master_port = plan.endpoints[0].port;
  }
  return world;
}

}  // namespace trainer::launch
