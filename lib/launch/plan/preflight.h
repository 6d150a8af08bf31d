#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "net/address.h"

// What is known to break jobs, looked for on each node before any worker starts.

namespace trainer::launch {

struct Check {
  enum class Status { kOk, kWarning, kError };
  std::string name;  // of what was looked at: "GPUs", "/dev/shm"
  Status status = Status::kOk;
  std::string found;
  std::string mend;  // how to mend it; empty when ok
  bool operator==(const Check&) const = default;
};

// For sending checks between nodes. from_json throws nlohmann::json::exception.
void to_json(nlohmann::json& json, const Check& check);
void from_json(const nlohmann::json& json, Check& check);

// Limits of this process and its containers that workers inherit; kNoLimit where there is none.
struct NodeLimits {
  static constexpr int64_t kNoLimit = INT64_MAX;
  int64_t shm_bytes = -1;  // of /dev/shm; -1: there is none
  int64_t shm_free_bytes = -1;
  int64_t open_files = kNoLimit;
  int64_t locked_memory_bytes = kNoLimit;
  int64_t free_pids = kNoLimit;
};
NodeLimits read_node_limits(const std::filesystem::path& root = "/");

struct PreflightInput {
  hardware::Machine machine;
  std::vector<net::Interface> interfaces;  // net::interfaces()
  NodeLimits limits;                       // read_node_limits()
  int64_t nproc = 1;                       // workers of this node
  int64_t num_nodes = 1;                   // the most there can be
  bool uses_gpus = false;                  // the workers, one each
  bool uses_rdma = false;                  // NCCL has adapters to use: its variable NCCL_IB_HCA is set
  bool is_trainer = true;                  // the workers are this program
  std::string interface;                   // launch.interface
  std::string endpoint_host;               // where nodes meet; empty with one node
  std::map<std::string, std::string> env;  // of the workers, network_profile()'s in it
  std::string network_warning;             // network_profile()'s
  std::filesystem::path output_dir;        // to be written by this node; empty: by another
  std::filesystem::path log_dir;
  double resolve_timeout_s = 5;
};

// Looks at everything, in a few milliseconds unless names are slow to resolve. Changes nothing.
std::vector<Check> check_node(const PreflightInput& input);

bool has_error(const std::vector<Check>& checks);

// For people: a line a check, and a second one on how to mend it; without those that are ok unless `all`.
std::string describe(const std::vector<Check>& checks, bool all);

}  // namespace trainer::launch
