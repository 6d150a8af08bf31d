#include "launch/plan/network_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;
using hardware::RdmaPort;
using spec::Network;

constexpr size_t kMaxAdapters = 32;  // NCCL reads no more

// Names of "NAME=value" lines.
void add_configured(const fs::path& file, std::set<std::string>& names) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (line.starts_with("NCCL_") && equals != std::string::npos) names.insert(line.substr(0, equals));
  }
}

bool is_usable(const RdmaPort& port) {
  return port.active && (port.link_layer == "InfiniBand" || port.link_layer == "Ethernet");
}

std::string name_of(const RdmaPort& port) {
  return fmt::format("{}:{}", port.device, port.port);
}

// Ports for the traffic between GPUs: of one link layer, as those of different ones can't talk to each other, and
// the fastest, as slower ones of a GPU server are for storage and management.
std::vector<RdmaPort> compute_ports(const std::vector<RdmaPort>& ports) {
  std::vector<RdmaPort> chosen;
  std::copy_if(ports.begin(), ports.end(), std::back_inserter(chosen), is_usable);
  const bool infiniband = std::any_of(chosen.begin(), chosen.end(),
                                      [](const RdmaPort& port) { return port.link_layer == "InfiniBand"; });
  if (infiniband) std::erase_if(chosen, [](const RdmaPort& port) { return port.link_layer != "InfiniBand"; });
  double rate = 0;
  for (const RdmaPort& port : chosen) rate = std::max(rate, port.rate_gbps);
  std::erase_if(chosen, [&](const RdmaPort& port) { return port.rate_gbps < rate; });
  if (chosen.size() > kMaxAdapters) chosen.resize(kMaxAdapters);
  return chosen;
}

NetworkSetting adapters(const std::vector<RdmaPort>& chosen, const std::vector<RdmaPort>& all) {
  std::vector<std::string> names, left_out;
  for (const RdmaPort& port : chosen) names.push_back(name_of(port));
  for (const RdmaPort& port : all) {
    if (std::count(names.begin(), names.end(), name_of(port)) > 0) continue;
    left_out.push_back(port.active
                           ? fmt::format("{} {} {:g} Gb/s", name_of(port), port.link_layer, port.rate_gbps)
                           : name_of(port) + " not active");
  }
  std::string reason = fmt::format("{} active {} port{} of {:g} Gb/s", names.size(),
                                   chosen[0].link_layer == "Ethernet" ? "RoCE" : chosen[0].link_layer,
                                   names.size() == 1 ? "" : "s", chosen[0].rate_gbps);
  if (!left_out.empty()) reason += fmt::format("; without {}", fmt::join(left_out, ", "));
  return {"NCCL_IB_HCA", fmt::format("={}", fmt::join(names, ",")), reason};
}

// In a virtual machine GPU and adapter hang on the root complex, whatever is between them in truth, and NCCL, which
// goes through switches only, would copy all by way of the host.
bool needs_host_bridge(const std::vector<RdmaPort>& chosen, const NetworkHost& host) {
  if (!host.hides_pci_switches || !host.has_peer_memory_module) return false;
  bool same_node = false;
  for (const hardware::PciPlace& gpu : host.gpus) {
    for (const RdmaPort& port : chosen) {
      if (hardware::share_pci_switch(gpu, port.place)) return false;
      same_node = same_node || (gpu.numa_node == port.place.numa_node && !gpu.path.empty());
    }
  }
  return same_node;
}

struct ChosenInterface {
  std::string name, reason;
  bool is_ipv6 = false;
};

ChosenInterface choose_interface(const NetworkQuestion& question, const NetworkHost& host) {
  ChosenInterface chosen{question.interface, "launch.interface", false};
  for (const net::Interface& interface : host.interfaces) {
    if (!question.interface.empty() && interface.name != question.interface) continue;
    for (const net::Address& address : interface.addresses) {
      if (address.host() != question.address) continue;
      if (chosen.name.empty()) chosen = {interface.name, question.address_from, false};
      chosen.is_ipv6 = address.family() == AF_INET6;
    }
  }
  return chosen;
}

std::string no_port_warning(const std::vector<RdmaPort>& ports) {
  std::vector<std::string> found;
  for (const RdmaPort& port : ports)
    found.push_back(name_of(port) + (port.active ? " " + port.link_layer : " not active"));
  return fmt::format(
      "launch.network: infiniband, but this host has no active InfiniBand or RoCE port ({}); NCCL will use "
      "sockets\n"
      "  hint: see ibstat; a container needs --device=/dev/infiniband",
      found.empty() ? "/sys/class/infiniband is empty" : fmt::to_string(fmt::join(found, ", ")));
}

}  // namespace

NetworkHost read_network_host(const std::vector<hardware::Gpu>& gpus, const fs::path& root) {
  NetworkHost host;
  host.interfaces = net::interfaces();
  host.ports = hardware::rdma_ports(root);
  for (const hardware::Gpu& gpu : gpus) host.gpus.push_back(hardware::pci_place(gpu.pci_id, root));
  host.has_peer_memory_module = hardware::has_peer_memory_module(root);
  host.hides_pci_switches = hardware::is_virtual_machine(root) &&
                            !fs::exists(root / "var/run/nvidia-topologyd/virtualTopology.xml");
  add_configured(root / "etc/nccl.conf", host.configured);
  if (const char* file = std::getenv("NCCL_CONF_FILE")) {
    add_configured(file, host.configured);
  } else if (const char* home = std::getenv("HOME")) {
    add_configured(root / fs::path(home).relative_path() / ".nccl.conf", host.configured);
  }
  return host;
}

NetworkProfile network_profile(const NetworkQuestion& question, const NetworkHost& host,
                               const std::map<std::string, std::string>& env) {
  NetworkProfile profile;
  if (question.num_nodes == 1 || question.network == Network::kNone) return profile;
  const auto is_set = [&](const char* name) { return env.contains(name) || host.configured.contains(name); };
  const auto set = [&](const char* name, std::string value, std::string reason) {
    if (!is_set(name)) profile.settings.push_back({name, std::move(value), std::move(reason)});
  };

  if (const ChosenInterface interface = choose_interface(question, host); !interface.name.empty()) {
    set("GLOO_SOCKET_IFNAME", interface.name, interface.reason);
    if (question.uses_gpus) {
      set("NCCL_SOCKET_IFNAME", "=" + interface.name, interface.reason);
      // Of an interface's addresses NCCL takes the first, which is an IPv4 one if it has any.
      if (interface.is_ipv6) set("NCCL_SOCKET_FAMILY", "AF_INET6", interface.reason);
    }
  }
  if (!question.uses_gpus) return profile;

  const std::vector<RdmaPort> chosen = compute_ports(host.ports);
  if (question.network == Network::kSocket) {
    set("NCCL_NET", "Socket", "launch.network: socket");
    if (!host.ports.empty()) set("NCCL_IB_DISABLE", "1", "launch.network: socket");
  } else if (chosen.empty()) {
    if (question.network == Network::kInfiniband) profile.warning = no_port_warning(host.ports);
  } else {
    const NetworkSetting setting = adapters(chosen, host.ports);
    set("NCCL_IB_HCA", setting.value, setting.reason);
    if (needs_host_bridge(chosen, host) && !is_set("NCCL_TOPO_FILE")) {
      set("NCCL_NET_GDR_LEVEL", "PHB",
          "a virtual machine, which hides the switches between GPUs and adapters");
    }
  }
  return profile;
}

std::vector<std::string> describe(const NetworkProfile& profile) {
  std::vector<std::string> lines;
  for (const NetworkSetting& setting : profile.settings) {
    lines.push_back(fmt::format("network: {}={} ({})", setting.name, setting.value, setting.reason));
  }
  return lines;
}

std::vector<std::string> select_as_nccl(std::string_view value, const std::vector<std::string>& interfaces) {
  const bool others = value.starts_with('^');
  if (others) value.remove_prefix(1);
  const bool exact = value.starts_with('=');
  if (exact) value.remove_prefix(1);
  std::vector<std::string> names;
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    const std::string_view name = value.substr(0, std::min(comma, value.find(':')));
    if (!name.empty()) names.emplace_back(name);
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  std::vector<std::string> selected;
  for (const std::string& interface : interfaces) {
    const bool matches =
        names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return exact ? interface == name : interface.starts_with(name);
        });
    if (matches != others) selected.push_back(interface);
  }
  return selected;
}

}  // namespace trainer::launch
