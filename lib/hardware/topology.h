#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::hardware {

// Numbers of CPUs or NUMA nodes, ascending.
using IdList = std::vector<int>;

// The kernel's list format, "0-2,7": parsing stops at the first thing that is no number. IDs up to 65535.
IdList parse_id_list(std::string_view text);
std::string format_id_list(const IdList& ids);
// Of two ascending lists.
IdList intersection(const IdList& a, const IdList& b);

// A physical core, as far as this process may use it.
struct Core {
  IdList cpus;  // its hardware threads that are allowed, at least one
  int socket = 0;
  int numa_node = 0;
  int last_level_cache = 0;  // the least CPU of those that share it
  bool operator==(const Core&) const = default;
};

// What of the machine's CPUs and memory this process may use: its affinity and cpuset.
struct Topology {
  IdList cpus;
  IdList memory_nodes;
  std::vector<Core> cores;  // by their first CPU
  // Why the arrangement of the CPUs is unknown; then each CPU is a core of socket 0, node 0, with one cache.
  std::string unknown;

  // NUMA nodes with cores here, ascending.
  IdList numa_nodes() const;
};

// `root` is "/" but in tests, as below. Never throws.
Topology read_topology(const std::filesystem::path& root = "/");

// Where a PCI device sits.
struct PciPlace {
  int numa_node = -1;  // -1: the firmware does not say
  IdList local_cpus;
  std::filesystem::path path;  // through bridges and switches: .../pci0000:00/0000:00:01.0/0000:01:00.0
};

// `id`: "0000:dc:00.0". Of a device that sysfs does not show, nothing is known.
PciPlace pci_place(const std::string& id, const std::filesystem::path& root = "/");

// Whether two devices meet below the root of the PCI tree, so that neither the CPU nor its root complex is on
// the way between them.
bool share_pci_switch(const PciPlace& a, const PciPlace& b);

// A port of an RDMA adapter: InfiniBand, or RoCE over Ethernet.
struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  bool active = false;
  std::string
      link_layer;  // "InfiniBand", "Ethernet" (RoCE), or another that NCCL's verbs transport can't use
  double rate_gbps = 0;
  std::string interface;  // of the same port for IP, "" when there is none
  PciPlace place;
};

// By device (of several digits too: mlx5_2 is before mlx5_10) and port; none without /sys/class/infiniband.
std::vector<RdmaPort> rdma_ports(const std::filesystem::path& root = "/");

// Whether the GPU driver lets RDMA adapters reach GPU memory by a kernel module (the other way, dma-buf, shows
// in no file).
bool has_peer_memory_module(const std::filesystem::path& root = "/");

// Whether this is a virtual machine, which hides the machine's PCI switches.
bool is_virtual_machine(const std::filesystem::path& root = "/");

}  // namespace trainer::hardware
