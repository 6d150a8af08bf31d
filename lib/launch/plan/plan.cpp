#include "launch/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxWorkers = 1024;  // a node has no more; the agent holds six descriptors a worker

constexpr int64_t kMostNodes = 10'000;
constexpr int64_t kRendezvousPort = 29400;  // torch's

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

void resolve_nodes(std::string_view text, WorkerPlan& plan) {
  const size_t colon = text.find(':');
  const std::optional<int64_t> min = to_integer(text.substr(0, colon));
  const std::optional<int64_t> max =
      colon == std::string_view::npos ? min : to_integer(text.substr(colon + 1));
  if (!min || !max || *min < 1 || *max > kMostNodes || *min > *max) {
    fail<SpecError>("launch.nnodes: got \"{}\"; expected a number from 1 to {}, or MIN:MAX of such numbers",
                    text, kMostNodes);
  }
  plan.min_nodes = *min;
  plan.max_nodes = *max;
}

std::string without_brackets(std::string_view host) {
  const bool has = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return std::string(has ? host.substr(1, host.size() - 2) : host);
}

// Where several nodes meet, and how they are numbered.
void resolve_meeting(const spec::Launch& launch, WorkerPlan& plan) {
  const bool is_fixed = plan.min_nodes == plan.max_nodes && launch.rdzv_endpoint.empty();
  if (!launch.rdzv_endpoint.empty()) {
    plan.endpoints = net::parse_endpoints(launch.rdzv_endpoint, "launch.rdzv_endpoint", kRendezvousPort);
    for (const Endpoint& endpoint : plan.endpoints) {
      if (endpoint.port == 0) {
        fail<SpecError>("launch.rdzv_endpoint: got port 0 with {} nodes; expected one that all nodes know",
                        *launch.nnodes);
      }
    }
  } else if (launch.master_addr.empty()) {
    fail<SpecError>(
        "launch.{}: not set, with {} nodes; expected the address where they meet\n  hint: {}",
        is_fixed ? "master_addr" : "rdzv_endpoint", *launch.nnodes,
        is_fixed
            ? "--master-addr HOST --node-rank K, or --rdzv-endpoint HOST:PORT, the same host on every node"
            : "--rdzv-endpoint HOST:PORT, the same on every node; one of them has this address");
  } else {
    plan.endpoints = {{without_brackets(launch.master_addr), launch.master_port.value_or(net::kDefaultPort)}};
    if (plan.endpoints[0].port == 0) {
      fail<SpecError>(
          "launch.master_port: got 0 with {} nodes; expected a port that is free on node 0, the same on "
          "every node",
          *launch.nnodes);
    }
  }
  if (is_fixed && !launch.node_rank) {
    fail<SpecError>(
        "launch.node_rank: not set, with {} nodes that meet at {}; expected this node's number, 0 to {}\n  "
        "hint: "
        "--node-rank K, or NODE_RANK in the environment; with --rdzv-endpoint nodes are numbered as they "
        "come",
        plan.max_nodes, plan.endpoints[0].host, plan.max_nodes - 1);
  }
  if (launch.node_rank && *launch.node_rank >= plan.max_nodes) {
    fail<SpecError>("launch.node_rank: got {}; expected 0 to {} (launch.nnodes is {})", *launch.node_rank,
                    plan.max_nodes - 1, *launch.nnodes);
  }
  // In a range numbers would have gaps.
  plan.node_rank = plan.min_nodes == plan.max_nodes ? launch.node_rank.value_or(-1) : -1;
}

// Ranks that are not here may be those of a larger node; when all are, it is a mistake.
void check_ranks(const char* key, const std::vector<int64_t>& ranks, const WorkerPlan& plan) {
  const auto is_here = [&](int64_t rank) { return rank < plan.nproc; };
  if (ranks.empty() || plan.max_nodes > 1 || std::any_of(ranks.begin(), ranks.end(), is_here)) return;
  fail<SpecError>("launch.{}: got local rank {}; expected 0{} ({} worker{})", key, ranks.front(),
                  plan.nproc == 1 ? "" : fmt::format(" to {}", plan.nproc - 1), plan.nproc,
                  plan.nproc == 1 ? "" : "s");
}

// By local rank, of torchrun's "3" or "0:1,1:2" (whose other ranks have none).
std::vector<Streams> by_rank(const char* key, std::string_view text, const WorkerPlan& plan) {
  const int64_t nproc = plan.nproc;
  std::vector<Streams> streams(static_cast<size_t>(nproc), 0);
  if (text.find(':') == std::string_view::npos) {
    std::fill(streams.begin(), streams.end(), static_cast<Streams>(to_integer(text).value_or(0)));
    return streams;
  }
  std::vector<int64_t> ranks;
  for (const std::string_view item : split(text)) {
    const size_t colon = item.find(':');
    const int64_t rank = to_integer(item.substr(0, colon)).value_or(-1);
    ranks.push_back(rank);
    if (rank >= 0 && rank < nproc)
      streams[static_cast<size_t>(rank)] =
          static_cast<Streams>(to_integer(item.substr(colon + 1)).value_or(0));
  }
  check_ranks(key, ranks, plan);
  return streams;
}

void resolve_output(const spec::Launch& launch, WorkerPlan& plan) {
  const std::vector<Streams> redirected = by_rank("redirects", launch.redirects, plan);
  const std::vector<Streams> teed = by_rank("tee", launch.tee, plan);
  for (size_t i = 0; i < redirected.size(); ++i) plan.file_only.push_back(redirected[i] & ~teed[i]);
  // torchrun logs only what is redirected or teed; here a failure's report reads the logs, so all is logged.
  plan.log_to_files = launch.log_dir != "/dev/null";
  plan.files.assign(redirected.size(), plan.log_to_files ? 3 : 0);
  check_ranks("local_ranks_filter", launch.local_ranks_filter, plan);
  plan.shown_ranks = launch.local_ranks_filter;
  plan.log_max_bytes = launch.log_max_mb << 20;
  plan.stdout_filters = launch.duplicate_stdout_filters;
  plan.stderr_filters = launch.duplicate_stderr_filters;
}

std::vector<int> parse_signals(std::string_view text) {
  std::vector<int> signals;
  for (const std::string_view name : split(text)) {
    int signal = 1;
    const auto is_named = [&] {
      const char* abbreviation = ::sigabbrev_np(signal);
      return abbreviation != nullptr && (name == abbreviation || name == std::string("SIG") + abbreviation);
    };
    while (signal < 32 && !is_named()) ++signal;
    if (signal == 32 || signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD) {
      fail<SpecError>(
          "launch.signals_to_handle: got \"{}\"; expected names of signals that can be handled, e.g. "
          "SIGTERM,SIGUSR1",
          name);
    }
    signals.push_back(signal);
  }
  return signals;
}

void check_visible_devices(const spec::Launch& launch, const WorkerPlan& plan) {
  const char* inherited = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto said = launch.env.find("CUDA_VISIBLE_DEVICES");
  const std::string_view list = said != launch.env.end() ? std::string_view(said->second)
                                : inherited              ? inherited
                                                         : "";
  if (!plan.virtual_local_rank || (inherited == nullptr && said == launch.env.end())) return;
  const auto devices = static_cast<int64_t>(split(list).size());
  if (devices >= plan.nproc) return;
  fail<SpecError>("launch.virtual_local_rank: {} workers, but CUDA_VISIBLE_DEVICES={} has {} device{}",
                  plan.nproc, list, devices, devices == 1 ? "" : "s");
}

int64_t resolve_nproc(const spec::Launch& launch, const std::optional<spec::Hardware>& hardware,
                      const hardware::Machine& machine) {
  const auto gpus = static_cast<int64_t>(machine.gpus.size());
  const std::string& text = launch.nproc_per_node;
  const spec::DeviceChoice device = hardware ? hardware->device : spec::DeviceChoice::kAuto;
  if ((device == spec::DeviceChoice::kCuda || text == "gpu") && gpus == 0) {
    fail<SpecError>(
        "{}: GPUs are asked for, but this machine shows none\n  hint: see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES{}",
        text == "gpu" ? "launch.nproc_per_node" : "hardware.device",
        hardware ? ", or set hardware.device: cpu" : "");
  }
  if (text == "gpu" && device == spec::DeviceChoice::kCpu) {
    fail<SpecError>(
        "launch.nproc_per_node: got \"gpu\" with hardware.device: cpu; expected \"cpu\", \"auto\" or a "
        "number");
  }
  const bool uses_cuda = device != spec::DeviceChoice::kCpu && gpus > 0;
  if (text == "gpu") return gpus;
  if (text == "cpu") return machine.cores;
  if (text == "auto") return uses_cuda ? gpus : 1;
  const std::optional<int64_t> number = to_integer(text);
  if (!number || *number < 1 || *number > kMaxWorkers) {
    fail<SpecError>(
        "launch.nproc_per_node: got \"{}\"; expected \"auto\", \"gpu\", \"cpu\" or a number from 1 to {}",
        text, kMaxWorkers);
  }
  if (hardware && uses_cuda && *number > gpus) {
    fail<SpecError>(
        "launch.nproc_per_node: got {}, but this machine shows {} GPU{}\n  hint: set hardware.device: cpu, "
        "or see "
        "CUDA_VISIBLE_DEVICES",
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

WorkerPlan plan_workers(const spec::Launch& launch, const std::optional<spec::Hardware>& hardware,
                        const hardware::Machine& machine, std::vector<std::string> argv) {
  check_env(launch.env);
  WorkerPlan plan;
  plan.argv = std::move(argv);
  plan.env = launch.env;
  plan.is_trainer = hardware.has_value();
  plan.nproc = resolve_nproc(launch, hardware, machine);
  plan.run_id = launch.run_id;
  plan.role = launch.role;
  plan.token = launch.token;

  resolve_nodes(launch.nnodes.value_or("1"), plan);
  if (plan.max_nodes > 1) {
    resolve_meeting(launch, plan);
  } else if (!launch.rdzv_endpoint.empty()) {  // of no use, but what is wrong is said
    static_cast<void>(net::parse_endpoints(launch.rdzv_endpoint, "launch.rdzv_endpoint", kRendezvousPort));
  }
  plan.local_addr = launch.local_addr;
  plan.interface = launch.interface;
  plan.network = launch.network;
  plan.preflight = launch.preflight;
  plan.join_timeout_s = launch.join_timeout_s;
  plan.last_call_s = launch.last_call_s;
  plan.heartbeat_s = launch.heartbeat_s;
  plan.heartbeat_timeout_s = launch.heartbeat_timeout_s;
  if (plan.heartbeat_timeout_s < 2 * plan.heartbeat_s) {
    fail<SpecError>("launch.heartbeat_timeout_s: got {}; expected at least twice launch.heartbeat_s, {}",
                    plan.heartbeat_timeout_s, plan.heartbeat_s);
  }

  plan.max_restarts = launch.max_restarts;
  plan.max_restarts_without_progress = launch.max_restarts_without_progress;
  plan.hang_timeout_s = launch.hang_timeout_s;
  plan.straggler_factor = launch.straggler_factor;
  plan.straggler_interval_s = launch.straggler_interval_s;

  plan.stop_signals = parse_signals(launch.signals_to_handle);
  plan.grace_s = launch.grace_s;
  plan.preempt_grace_s = launch.preempt_grace_s;
  plan.preempt_file = launch.preempt_file;
  plan.stop_before_end_s = launch.stop_before_end_s;

  resolve_output(launch, plan);

  plan.machine = machine;
  plan.uses_gpus = hardware && hardware->device != spec::DeviceChoice::kCpu && !machine.gpus.empty();
  plan.cores = machine.cores;
  plan.threads_per_worker = hardware ? hardware->threads_per_worker : 0;
  plan.virtual_local_rank = launch.virtual_local_rank;
  plan.numa_binding = launch.numa_binding;
  check_visible_devices(launch, plan);
  return plan;
}

std::vector<std::string> self_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), fs::read_symlink("/proc/self/exe").string());
  return arguments;
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
