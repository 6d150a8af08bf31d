// What schedulers tell of this node's place in the job.

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "launch/plan/plan.h"

namespace trainer::launch {
namespace {

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::optional<int64_t> number(const char* name, int64_t min, int64_t max) {
  const char* text = variable(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < min || value > max)
    fail<SpecError>("{}: got \"{}\"; expected an integer from {} to {}", name, text, min, max);
  return value;
}

constexpr int64_t kMostNodes = 10'000;

// Nodes of the srun step that this process is a task of, when each node has one task: then a task is an agent.
// Else 0.
int64_t slurm_nodes() {
  if (variable("SLURM_STEP_ID") == nullptr) return 0;
  const auto nodes = number("SLURM_STEP_NUM_NODES", 1, kMostNodes);
  return nodes && nodes == number("SLURM_STEP_NUM_TASKS", 1, 10'000'000) ? *nodes : 0;
}

std::optional<int64_t> scheduled_rank() {
  for (const char* name : {"NODE_RANK", "SKYPILOT_NODE_RANK"}) {
    if (const auto rank = number(name, 0, kMostNodes - 1)) return rank;
  }
  if (slurm_nodes() > 1) return number("SLURM_NODEID", 0, kMostNodes - 1);
  return number("JOB_COMPLETION_INDEX", 0, kMostNodes - 1);
}

std::string scheduled_head() {
  if (const char* address = variable("MASTER_ADDR")) return address;
  if (const char* addresses = variable("SKYPILOT_NODE_IPS")) {
    const std::string_view view(addresses);
    return std::string(view.substr(0, view.find_first_of("\r\n ,")));
  }
  const char* nodes = variable("SLURM_STEP_NODELIST");
  return slurm_nodes() > 1 && nodes != nullptr ? slurm_first_host(nodes) : "";
}

}  // namespace

void ask_scheduler(spec::Launch& launch) {
  if (const char* token = variable("TRAINER_TOKEN")) launch.token = token;
  if (!launch.nnodes) {
    const int64_t nodes = number("SKYPILOT_NUM_NODES", 1, kMostNodes).value_or(slurm_nodes());
    launch.nnodes = std::to_string(nodes > 1 ? nodes : 1);
  }
  if (launch.nnodes == "1" || launch.nnodes == "1:1" || !launch.rdzv_endpoint.empty()) return;
  const bool is_fixed = launch.nnodes->find(':') == std::string::npos;
  if (!launch.node_rank && is_fixed) launch.node_rank = scheduled_rank();
  if (launch.master_addr.empty()) launch.master_addr = scheduled_head();
  if (!launch.master_port) launch.master_port = number("MASTER_PORT", 1, 65535);
}

}  // namespace trainer::launch
