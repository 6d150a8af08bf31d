#include "job/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/math.h"
#include "spec/fault.h"

namespace trainer {
namespace {

constexpr int64_t kDefaultPort = 29500;       // torch's
constexpr int64_t kMostWorkers = 10'000'000;  // spec::describe's bounds: products with it stay in 64 bits

const char* variable(const char* name) {
  return std::getenv(name);
}

bool parse_integer(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads variables; collects the faults of all of them.
class Environment {
 public:
  explicit Environment(const char* launcher) : launcher_(launcher), faults_("the environment") {}

  std::string text(const char* name) {
    const char* value = variable(name);
    if (value == nullptr) fault(name, fmt::format("not set; expected it from {}", launcher_));
    return value == nullptr ? "" : value;
  }
  int64_t integer(const char* name, int64_t min, int64_t max = std::numeric_limits<int64_t>::max()) {
    const char* value = variable(name);
    if (value == nullptr) {
      text(name);
      return min;
    }
    int64_t number = 0;
    if (!parse_integer(value, number) || number < min || number > max) {
      const std::string range = max == std::numeric_limits<int64_t>::max()
                                    ? fmt::format(">= {}", min)
                                    : fmt::format("from {} to {}", min, max);
      fault(name, fmt::format("got {}; expected an integer {}", spec::shown(value), range));
      return min;
    }
    return number;
  }
  // A rank and the size that it must be below.
  void rank(const char* name, int64_t& rank, const char* size_name, int64_t& size) {
    size = integer(size_name, 1, kMostWorkers);
    rank = integer(name, 0);
    if (rank >= size) fault(name, fmt::format("got {}; expected less than {} ({})", rank, size_name, size));
  }
  void fault(const char* name, const std::string& message) { faults_.add({}, name, message); }
  void throw_if_any() const { faults_.throw_if_any(); }

 private:
  const char* launcher_;
  spec::Faults faults_;
};

World torchrun_world(const char* launcher) {
  Environment env(launcher);
  World world;
  env.rank("RANK", world.rank, "WORLD_SIZE", world.size);
  env.rank("LOCAL_RANK", world.local_rank, "LOCAL_WORLD_SIZE", world.local_size);
  env.rank("GROUP_RANK", world.node_rank, "GROUP_WORLD_SIZE", world.num_nodes);
  world.master_addr = env.text("MASTER_ADDR");
  world.master_port = env.integer("MASTER_PORT", 0, 65535);
  env.throw_if_any();
  return world;
}

// Slurm's tasks of each node: "2(x3),1" is 2, 2, 2, 1.
bool parse_tasks_per_node(std::string_view text, std::vector<int64_t>& tasks) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    int64_t count = 0, times = 1;
    if (const size_t open = part.find("(x"); open != std::string_view::npos) {
      if (part.back() != ')' || !parse_integer(part.substr(open + 2, part.size() - open - 3), times))
        return false;
      part = part.substr(0, open);
    }
    if (!parse_integer(part, count) || count < 1 || times < 1 || times > 1'000'000) return false;
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
  }
  return !tasks.empty();
}

// A port that is the same on all ranks of a job and mostly another for each job, since jobs share hosts; below
// the ephemeral range.
int64_t port_of(uint64_t job) {
  return 15000 + static_cast<int64_t>(job % 15000);
}

World slurm_world() {
  Environment env("srun");
  World world;
  env.rank("SLURM_PROCID", world.rank, "SLURM_STEP_NUM_TASKS", world.size);
  env.rank("SLURM_NODEID", world.node_rank, "SLURM_STEP_NUM_NODES", world.num_nodes);
  world.local_rank = env.integer("SLURM_LOCALID", 0);
  const std::string tasks_text = env.text("SLURM_STEP_TASKS_PER_NODE");
  std::vector<int64_t> tasks;
  if (!parse_tasks_per_node(tasks_text, tasks) || world.node_rank >= static_cast<int64_t>(tasks.size()) ||
      std::accumulate(tasks.begin(), tasks.end(), int64_t{0}) != world.size) {
    env.fault("SLURM_STEP_TASKS_PER_NODE",
              fmt::format("got {}; expected the {} tasks of {} nodes, e.g. 4(x2),1", spec::shown(tasks_text),
                          world.size, world.num_nodes));
  } else {
    world.local_size = tasks[static_cast<size_t>(world.node_rank)];
    if (world.local_rank >= world.local_size) {
      env.fault("SLURM_LOCALID", fmt::format("got {}; expected less than the node's {} tasks",
                                             world.local_rank, world.local_size));
    }
  }
  if (const char* addr = variable("MASTER_ADDR")) {
    world.master_addr = addr;
  } else {
    const std::string nodes = env.text("SLURM_STEP_NODELIST");
    world.master_addr = slurm_first_host(nodes);
    if (world.master_addr.empty()) {
      env.fault("SLURM_STEP_NODELIST",
                fmt::format("got {}; expected host names, e.g. gpu[01-04]", spec::shown(nodes)));
    }
  }
  if (variable("MASTER_PORT") != nullptr) {
    world.master_port = env.integer("MASTER_PORT", 1, 65535);
  } else {
    const int64_t job = env.integer("SLURM_JOB_ID", 0, 1'000'000'000'000);
    const int64_t step = env.integer("SLURM_STEP_ID", 0, 1'000'000'000'000);
    world.master_port = port_of(static_cast<uint64_t>(job * 61 + step));
  }
  env.throw_if_any();
  return world;
}

World mpi_world() {
  Environment env("mpirun");
  World world;
  env.rank("OMPI_COMM_WORLD_RANK", world.rank, "OMPI_COMM_WORLD_SIZE", world.size);
  env.rank("OMPI_COMM_WORLD_LOCAL_RANK", world.local_rank, "OMPI_COMM_WORLD_LOCAL_SIZE", world.local_size);
  if (world.local_size != world.size) {
    // Open MPI tells neither nodes nor this node's number (its NODE_RANK is a rank within the node): this
    // holds for equal nodes filled in order, mpirun's default.
    world.num_nodes = ceil_div(world.size, world.local_size);
    world.node_rank = world.rank / world.local_size;
    if (variable("MASTER_ADDR") == nullptr) {
      env.fault("MASTER_ADDR", "not set; expected the host of rank 0 (mpirun -x MASTER_ADDR=...)");
    }
  }
  if (const char* addr = variable("MASTER_ADDR")) world.master_addr = addr;
  if (variable("MASTER_PORT") != nullptr) {
    world.master_port = env.integer("MASTER_PORT", 1, 65535);
  } else if (const char* run = variable("PMIX_NAMESPACE")) {  // of this mpirun, a number or a text
    uint64_t hash = 0;
    for (const char* letter = run; *letter != '\0'; ++letter)
      hash = hash * 31 + static_cast<unsigned char>(*letter);
    world.master_port = port_of(hash);
  } else {
    world.master_port = kDefaultPort;
  }
  env.throw_if_any();
  return world;
}

bool is_set(const char* name) {
  const char* text = variable(name);
  return text != nullptr && *text != '\0';
}

// Whether the variable is a number above 1; what is malformed is left to the one who reads it.
bool is_several(const char* name) {
  const char* text = variable(name);
  int64_t value = 0;
  return text != nullptr && (!parse_integer(text, value) || value > 1);
}

}  // namespace

std::string slurm_first_host(std::string_view list) {
  const size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  const std::string_view inside = list.substr(end + 1);
  host += inside.substr(0, inside.find_first_of("-,]"));
  const size_t close = inside.find(']');
  if (close == std::string_view::npos) return "";
  const std::string_view tail = inside.substr(close + 1);
  return host + std::string(tail.substr(0, tail.find(',')));
}

std::optional<World> world_from_environment(bool is_agent) {
  const char* marker = variable("TRAINER_WORKER");
  if (marker != nullptr && std::string_view(marker) == "1") return torchrun_world("the agent");
  if (variable("TORCHELASTIC_RUN_ID") != nullptr && variable("LOCAL_RANK") != nullptr)
    return torchrun_world("torchrun");
  if (is_agent || is_set("PET_NNODES") || is_set("PET_NODE_RANK") || is_set("PET_RDZV_ENDPOINT"))
    return std::nullopt;
  if (variable("SLURM_STEP_ID") != nullptr && is_several("SLURM_STEP_NUM_TASKS")) return slurm_world();
  if (variable("OMPI_COMM_WORLD_RANK") != nullptr && is_several("OMPI_COMM_WORLD_SIZE")) return mpi_world();
  return std::nullopt;
}

}  // namespace trainer
