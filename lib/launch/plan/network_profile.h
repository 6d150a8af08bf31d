#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/machine.h"
#include "hardware/topology.h"
#include "net/address.h"
#include "spec/job_spec.h"

namespace trainer::launch {

// What of this host bears on how its workers reach other nodes.
struct NetworkHost {
  std::vector<net::Interface> interfaces;
  std::vector<hardware::RdmaPort> ports;
  std::vector<hardware::PciPlace> gpus;
  bool has_peer_memory_module = false;
  bool hides_pci_switches = false;   // a virtual machine that doesn't describe the real one to NCCL either
  std::set<std::string> configured;  // variables that the administrator or the user set in NCCL's files
};

NetworkHost read_network_host(const std::vector<hardware::Gpu>& gpus,
                              const std::filesystem::path& root = "/");

struct NetworkQuestion {
  spec::Network network = spec::Network::kAuto;
  int64_t num_nodes = 1;     // the most there can be
  bool uses_gpus = false;    // the workers', by NCCL
  std::string interface;     // launch.interface
  std::string address;       // of this node for its peers, as digits; empty: not known
  std::string address_from;  // why that one: "route to 10.0.0.1", "launch.local_addr"
};

struct NetworkSetting {
  std::string name, value, reason;
  bool operator==(const NetworkSetting&) const = default;
};

struct NetworkProfile {
  std::vector<NetworkSetting> settings;
  std::string warning;  // what was asked for and is not there; empty: nothing
};

// Variables of NCCL and Gloo for workers that are on several nodes; none for one node or launch.network: none.
// infiniband stands for RDMA, RoCE too; auto is infiniband when a port of it is active. What `env` (inherited, with
// launch.env over it) or NCCL's configuration files set is left as it is.
// Sources: NCCL's user guide, "Environment Variables"; PyTorch's "torch.distributed", "Common environment variables".
NetworkProfile network_profile(const NetworkQuestion& question, const NetworkHost& host,
                               const std::map<std::string, std::string>& env);

// "network: NCCL_SOCKET_IFNAME==eth0 (route to 10.0.0.1)"
std::vector<std::string> describe(const NetworkProfile& profile);

// The names of `interfaces` that a value of NCCL_SOCKET_IFNAME selects: prefixes with commas between them, after "="
// exact names, after "^" or "^=" all others.
std::vector<std::string> select_as_nccl(std::string_view value, const std::vector<std::string>& interfaces);

}  // namespace trainer::launch
