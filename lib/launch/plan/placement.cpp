#include "launch/plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "spec/enums.h"

namespace trainer::launch {
namespace {

using hardware::Core;
using hardware::IdList;
using hardware::PciPlace;
using hardware::Topology;
using spec::NumaBinding;
using Cores = std::vector<Core>;

// Cores of one worker each, or why that can't be.
struct Shares {
  std::vector<Cores> cores;
  std::string why_not;
};

const char* plural(size_t n) {
  return n == 1 ? "" : "s";
}

// Cores that are near each other are next to each other.
Cores by_nearness(Cores cores) {
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.numa_node, a.last_level_cache, a.cpus) <
           std::tie(b.numa_node, b.last_level_cache, b.cpus);
  });
  return cores;
}

template <class Predicate>
Cores select(const Cores& cores, Predicate predicate) {
  Cores selected;
  std::copy_if(cores.begin(), cores.end(), std::back_inserter(selected), predicate);
  return selected;
}

// The i-th of n equal parts; the first ones have one more when it does not come out even.
Cores part(const Cores& cores, size_t i, size_t n) {
  const size_t size = cores.size() / n, rest = cores.size() % n;
  const auto first = cores.begin() + static_cast<std::ptrdiff_t>(i * size + std::min(i, rest));
  return {first, first + static_cast<std::ptrdiff_t>(size + (i < rest ? 1 : 0))};
}

// Groups of cores with the same key, by key.
template <class Key>
std::vector<Cores> groups(const Cores& cores, Key key) {
  std::map<int, Cores> by_key;
  for (const Core& core : cores) by_key[key(core)].push_back(core);
  std::vector<Cores> grouped;
  for (auto& [id, members] : by_key) grouped.push_back(std::move(members));
  return grouped;
}

size_t num_cpus(const Cores& cores) {
  size_t n = 0;
  for (const Core& core : cores) n += core.cpus.size();
  return n;
}

// The fullest first: a cpuset may leave little of some.
std::vector<Cores> core_complexes(const Cores& cores) {
  std::vector<Cores> complexes = groups(cores, [](const Core& core) { return core.last_level_cache; });
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const Cores& a, const Cores& b) { return num_cpus(a) > num_cpus(b); });
  return complexes;
}

// The NUMA node of a device: the firmware's word, or the one node that holds the CPUs near it. Machines of one node
// often say nothing.
std::optional<int> numa_node_of(const PciPlace& place, const Topology& topology) {
  if (place.numa_node >= 0) return place.numa_node;
  const IdList nodes = topology.numa_nodes();
  if (nodes.size() == 1) return nodes.front();
  std::optional<int> found;
  for (const Core& core : topology.cores) {
    if (hardware::intersection(core.cpus, place.local_cpus).empty()) continue;
    if (found && *found != core.numa_node) return std::nullopt;  // near all of them
    found = core.numa_node;
  }
  return found;
}

Shares share_by_gpu(NumaBinding binding, size_t num_workers, const Topology& topology,
                    const std::vector<PciPlace>& gpus) {
  std::vector<int> node_of_gpu;
  for (const PciPlace& gpu : gpus) {
    const std::optional<int> node = numa_node_of(gpu, topology);
    if (!node)
      return {{}, fmt::format("the system does not say which NUMA node GPU {} is on", node_of_gpu.size())};
    node_of_gpu.push_back(*node);
  }
  Shares shares;
  const Cores all = by_nearness(topology.cores);
  for (size_t i = 0; i < num_workers; ++i) {
    const int node = node_of_gpu[i];
    const Cores near = select(all, [&](const Core& core) { return core.numa_node == node; });
    const auto index = static_cast<size_t>(
        std::count(node_of_gpu.begin(), node_of_gpu.begin() + static_cast<std::ptrdiff_t>(i), node));
    const auto num_gpus = static_cast<size_t>(std::count(node_of_gpu.begin(), node_of_gpu.end(), node));
    if (near.empty()) {
      return {{},
              fmt::format("GPU {} is on NUMA node {}, of which no CPU is allowed (allowed: {})", i, node,
                          hardware::format_id_list(topology.cpus))};
    }
    if (binding == NumaBinding::kExclusive && near.size() < num_gpus) {
      return {{},
              fmt::format("{} GPU{} share the {} allowed core{} of NUMA node {}", num_gpus, plural(num_gpus),
                          near.size(), plural(near.size()), node)};
    }
    if (binding == NumaBinding::kSocket) {
      shares.cores.push_back(
          select(all, [&](const Core& core) { return core.socket == near.front().socket; }));
    } else if (binding == NumaBinding::kExclusive) {
      shares.cores.push_back(part(near, index, num_gpus));
    } else if (binding == NumaBinding::kCoreComplex) {
      const std::vector<Cores> complexes = core_complexes(near);
      shares.cores.push_back(complexes[index % complexes.size()]);
    } else {
      shares.cores.push_back(near);
    }
  }
  return shares;
}

// Groups that workers share or, when there are enough, have alone, spread evenly over them.
Shares deal_out(const std::vector<Cores>& dealt, size_t num_workers) {
  Shares shares;
  for (size_t i = 0; i < num_workers; ++i) shares.cores.push_back(dealt[i * dealt.size() / num_workers]);
  return shares;
}

Shares share_cores(NumaBinding binding, size_t num_workers, const Topology& topology) {
  const Cores all = by_nearness(topology.cores);
  const std::vector<Cores> nodes = groups(all, [](const Core& core) { return core.numa_node; });
  if (binding == NumaBinding::kNode) return deal_out(nodes, num_workers);
  if (binding == NumaBinding::kSocket) {
    return deal_out(groups(all, [](const Core& core) { return core.socket; }), num_workers);
  }
  if (binding == NumaBinding::kCoreComplex) {
    return deal_out(groups(all, [](const Core& core) { return core.last_level_cache; }), num_workers);
  }
  if (all.size() < num_workers) {
    return {{},
            fmt::format("{} worker{} for {} allowed core{}", num_workers, plural(num_workers), all.size(),
                        plural(all.size()))};
  }
  Shares shares;
  const bool within_nodes = num_workers % nodes.size() == 0 &&
                            std::all_of(nodes.begin(), nodes.end(),
                                        [&](const Cores& node) { return node.size() == nodes[0].size(); });
  const size_t per_node = within_nodes ? num_workers / nodes.size() : num_workers;
  for (size_t i = 0; i < num_workers; ++i) {
    shares.cores.push_back(part(within_nodes ? nodes[i / per_node] : all, i % per_node, per_node));
  }
  return shares;
}

Binding binding_of(const Cores& cores, const Topology& topology) {
  Binding binding;
  IdList nodes;
  for (const Core& core : cores) {
    binding.cpus.insert(binding.cpus.end(), core.cpus.begin(), core.cpus.end());
    nodes.push_back(core.numa_node);
  }
  std::sort(binding.cpus.begin(), binding.cpus.end());
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  // All nodes' memory is what a worker has anyway.
  if (nodes != topology.memory_nodes)
    binding.memory_nodes = hardware::intersection(nodes, topology.memory_nodes);
  binding.num_cores = static_cast<int64_t>(cores.size());
  return binding;
}

bool auto_helps(size_t num_workers, const Topology& topology, const std::vector<PciPlace>& gpus) {
  if (num_workers == 1) return false;
  if (gpus.empty()) return topology.cores.size() >= num_workers && topology.unknown.empty();
  const IdList nodes = topology.numa_nodes();
  return nodes.size() > 1 && std::any_of(gpus.begin(), gpus.end(), [&](const PciPlace& gpu) {
           return numa_node_of(gpu, topology) != numa_node_of(gpus.front(), topology);
         });
}

}  // namespace

Placement place_workers(NumaBinding binding, int64_t num_workers, const Topology& topology,
                        const std::vector<PciPlace>& all_gpus) {
  const auto n = static_cast<size_t>(num_workers);
  const std::vector<PciPlace> gpus = all_gpus.size() < n ? std::vector<PciPlace>{} : all_gpus;
  Placement placement;
  if (binding == NumaBinding::kAuto) {
    binding = auto_helps(n, topology, gpus) ? NumaBinding::kExclusive : NumaBinding::kNone;
  }
  if (binding == NumaBinding::kNone) return placement;
  const Shares shares = !topology.unknown.empty() ? Shares{{}, topology.unknown}
                        : gpus.empty()            ? share_cores(binding, n, topology)
                                                  : share_by_gpu(binding, n, topology, gpus);
  if (!shares.why_not.empty()) {
    placement.warning = fmt::format("launch.numa_binding: workers are not bound ({}): {}",
                                    spec::to_string(binding), shares.why_not);
    return placement;
  }
  placement.binding = binding;
  for (const Cores& cores : shares.cores) placement.workers.push_back(binding_of(cores, topology));
  return placement;
}

Placement place_workers(NumaBinding binding, int64_t num_workers, const std::vector<hardware::Gpu>& gpus) {
  if (binding == NumaBinding::kNone || (binding == NumaBinding::kAuto && num_workers == 1)) return {};
  std::vector<PciPlace> places;
  for (const hardware::Gpu& gpu : gpus) places.push_back(hardware::pci_place(gpu.pci_id));
  return place_workers(binding, num_workers, hardware::read_topology(), places);
}

int64_t worker_threads(const Placement& placement, int64_t local_rank, int64_t num_workers, int64_t cores) {
  int64_t threads = cores / num_workers;
  if (!placement.workers.empty()) {
    const Binding& own = placement.workers[static_cast<size_t>(local_rank)];
    const auto sharers = std::count_if(placement.workers.begin(), placement.workers.end(),
                                       [&](const Binding& other) { return other.cpus == own.cpus; });
    threads = std::min<int64_t>(threads, own.num_cores / sharers);
  }
  return std::max<int64_t>(1, threads);
}

std::string describe(const Placement& placement) {
  if (placement.workers.empty()) return {};
  std::string text = fmt::format("{}: ", spec::to_string(placement.binding));
  for (size_t i = 0; i < placement.workers.size(); ++i) {
    const Binding& worker = placement.workers[i];
    text += fmt::format("{}{} on CPU{} {}", i == 0 ? "" : "; ", i, plural(worker.cpus.size()),
                        hardware::format_id_list(worker.cpus));
    if (!worker.memory_nodes.empty()) {
      text += fmt::format(", memory of node{} {}", plural(worker.memory_nodes.size()),
                          hardware::format_id_list(worker.memory_nodes));
    }
  }
  return text;
}

}  // namespace trainer::launch
