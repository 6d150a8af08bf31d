#include "hardware/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

namespace trainer::hardware {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxId = 65535;

// First line, without the spaces around it; empty when the file can't be read.
std::string read_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

int read_int(const fs::path& file, int otherwise) {
  int value = otherwise;
  return std::ifstream(file) >> value ? value : otherwise;
}

// What follows "<key>:" in /proc/self/status.
std::string status_field(const fs::path& root, std::string_view key) {
  std::ifstream in(root / "proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    const size_t value = line.find_first_not_of(" \t", key.size() + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

// `prefix` and a number, as in "cpu12"; -1 for another name.
int numbered(const std::string& name, std::string_view prefix) {
  int number = -1;
  if (!name.starts_with(prefix)) return -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, number);
  return error == std::errc() && stop == end ? number : -1;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    names.push_back(i->path().filename());
  }
  return names;
}

std::map<int, int> numa_node_of_cpus(const fs::path& nodes) {
  std::map<int, int> node_of;
  for (const std::string& name : names_in(nodes)) {
    const int node = numbered(name, "node");
    if (node < 0) continue;
    for (const int cpu : parse_id_list(read_line(nodes / name / "cpulist"))) node_of[cpu] = node;
  }
  return node_of;
}

// CPUs that share the largest cache with this one.
IdList last_level_cache(const fs::path& caches) {
  IdList shared;
  int highest = 0;
  for (const std::string& name : names_in(caches)) {
    if (numbered(name, "index") < 0) continue;
    const int level = read_int(caches / name / "level", 0);
    if (level <= highest || read_line(caches / name / "type") == "Instruction") continue;
    highest = level;
    shared = parse_id_list(read_line(caches / name / "shared_cpu_list"));
  }
  return shared;
}

}  // namespace

IdList parse_id_list(std::string_view text) {
  IdList ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0, last = 0;
    auto [stop, error] = std::from_chars(at, end, first);
    if (error != std::errc()) break;
    last = first;
    if (stop != end && *stop == '-') {
      const auto range = std::from_chars(stop + 1, end, last);
      if (range.ec != std::errc()) break;
      stop = range.ptr;
    }
    if (first < 0 || last > kMaxId) break;
    for (int id = first; id <= last; ++id) ids.push_back(id);
    if (stop == end || *stop != ',') break;
    at = stop + 1;
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string format_id_list(const IdList& ids) {
  std::string text;
  for (size_t i = 0, n = 0; i < ids.size(); i += n) {
    for (n = 1; i + n < ids.size() && ids[i + n] == ids[i] + static_cast<int>(n); ++n) {
    }
    text += text.empty() ? "" : ",";
    text += n == 1 ? fmt::format("{}", ids[i]) : fmt::format("{}-{}", ids[i], ids[i + n - 1]);
  }
  return text;
}

IdList intersection(const IdList& a, const IdList& b) {
  IdList both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

IdList Topology::numa_nodes() const {
  IdList nodes;
  for (const Core& core : cores) nodes.push_back(core.numa_node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

Topology read_topology(const fs::path& root) {
  const fs::path cpu_directory = root / "sys/devices/system/cpu";
  const fs::path node_directory = root / "sys/devices/system/node";
  Topology topology;
  topology.cpus = parse_id_list(status_field(root, "Cpus_allowed_list"));
  topology.memory_nodes = parse_id_list(status_field(root, "Mems_allowed_list"));
  // Both lists hold CPUs and nodes that could be plugged in but are not.
  if (const IdList online = parse_id_list(read_line(cpu_directory / "online")); !online.empty()) {
    topology.cpus = intersection(topology.cpus, online);
  }
  if (const IdList online = parse_id_list(read_line(node_directory / "has_memory")); !online.empty()) {
    topology.memory_nodes = intersection(topology.memory_nodes, online);
  }
  if (topology.cpus.empty()) {
    topology.unknown = (root / "proc/self/status").string() + " does not say which CPUs are allowed";
    return topology;
  }

  const std::map<int, int> node_of = numa_node_of_cpus(node_directory);
  std::map<int, int> cache_of;  // of the CPUs seen so far: hundreds share a few caches, read once each
  std::map<int, size_t> core_of;
  for (const int cpu : topology.cpus) {
    if (core_of.contains(cpu)) continue;  // a sibling of one before
    const fs::path directory = cpu_directory / fmt::format("cpu{}", cpu);
    IdList siblings = parse_id_list(read_line(directory / "topology/thread_siblings_list"));
    if (siblings.empty()) {
      topology.unknown = (directory / "topology/thread_siblings_list").string() + " cannot be read";
      break;
    }
    if (!cache_of.contains(cpu)) {
      const IdList shared = last_level_cache(directory / "cache");
      cache_of[cpu] = shared.empty() ? siblings.front() : shared.front();
      for (const int other : shared) cache_of[other] = shared.front();
    }
    Core core;
    core.cpus = intersection(siblings, topology.cpus);
    core.socket = std::max(0, read_int(directory / "topology/physical_package_id", 0));
    core.numa_node = node_of.contains(cpu) ? node_of.at(cpu) : 0;
    core.last_level_cache = cache_of[cpu];
    for (const int sibling : core.cpus) core_of[sibling] = topology.cores.size();
    topology.cores.push_back(std::move(core));
  }
  if (!topology.unknown.empty()) {
    topology.cores.clear();
    for (const int cpu : topology.cpus) topology.cores.push_back({{cpu}, 0, 0, topology.cpus.front()});
  }
  return topology;
}

PciPlace pci_place(const std::string& id, const fs::path& root) {
  const fs::path device = root / "sys/bus/pci/devices" / id;
  std::error_code error;
  PciPlace place;
  if (id.empty()) return place;
  place.path = fs::canonical(device, error);
  place.numa_node = read_int(device / "numa_node", -1);
  place.local_cpus = parse_id_list(read_line(device / "local_cpulist"));
  return place;
}

bool share_pci_switch(const PciPlace& a, const PciPlace& b) {
  auto i = a.path.begin(), j = b.path.begin();
  bool below_root = false;  // the last step was a root, "pci0000:80"
  for (; i != a.path.end() && j != b.path.end() && *i == *j; ++i, ++j) {
    if (below_root) return true;
    below_root = i->string().starts_with("pci");
  }
  return false;
}

std::vector<RdmaPort> rdma_ports(const fs::path& root) {
  const fs::path devices = root / "sys/class/infiniband";
  std::vector<RdmaPort> ports;
  for (const std::string& device : names_in(devices)) {
    std::error_code error;
    const fs::path pci = fs::canonical(devices / device / "device", error);
    for (const std::string& number : names_in(devices / device / "ports")) {
      const fs::path directory = devices / device / "ports" / number;
      RdmaPort port;
      port.device = device;
      port.port = std::max(1, numbered(number, ""));
      port.active = read_line(directory / "state").ends_with("ACTIVE");  // "4: ACTIVE"
      port.link_layer = read_line(directory / "link_layer");
      std::ifstream(directory / "rate") >> port.rate_gbps;  // "400 Gb/sec (4X NDR)"
      port.interface = read_line(directory / "gid_attrs/ndevs/0");
      if (port.interface.empty()) {
        std::vector<std::string> names = names_in(devices / device / "device/net");
        if (names.size() == 1) port.interface = names.front();
      }
      if (!error) port.place = pci_place(pci.filename(), root);
      ports.push_back(std::move(port));
    }
  }
  std::sort(ports.begin(), ports.end(), [](const RdmaPort& a, const RdmaPort& b) {
    return std::make_tuple(a.device.size(), a.device, a.port) <
           std::make_tuple(b.device.size(), b.device, b.port);
  });
  return ports;
}

bool has_peer_memory_module(const fs::path& root) {
  return fs::exists(root / "sys/module/nvidia_peermem") || fs::exists(root / "sys/module/nv_peer_mem");
}

bool is_virtual_machine(const fs::path& root) {
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("flags")) return (line + " ").find(" hypervisor ") != std::string::npos;
  }
  return false;
}

}  // namespace trainer::hardware
