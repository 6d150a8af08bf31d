#include "launch/plan/placement.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "machine_tree.h"
#include "process/process.h"
#include "spec/enums.h"

using namespace trainer;
using namespace trainer::launch;
using hardware::IdList;
using hardware::PciPlace;
using hardware::Topology;
using spec::NumaBinding;

namespace {

std::vector<PciPlace> gpus_on(const std::vector<int>& nodes) {
  std::vector<PciPlace> gpus;
  for (const int node : nodes) gpus.push_back({node, {}, {}});
  return gpus;
}

std::vector<std::string> cpus_of(const Placement& placement) {
  std::vector<std::string> lists;
  for (const Binding& worker : placement.workers) lists.push_back(hardware::format_id_list(worker.cpus));
  return lists;
}

using Lists = std::vector<std::string>;

}  // namespace

TEST_CASE("workers are bound to the CPUs that torchrun binds them to") {
  const auto machines = nlohmann::json::parse(read_file(TEST_DATA "/launch/numa_bindings.json"));
  REQUIRE(machines.size() >= 6);
  for (const auto& machine : machines) {
    CAPTURE(machine["machine"].get<std::string>());
    const MachineTree tree;
    const auto shape = machine["shape"].get<std::vector<int>>();
    tree.add_cpus(shape[0], shape[1], shape[2], shape[3], shape[4]);
    if (machine.contains("allowed")) tree.allow(machine["allowed"].get<std::string>(), "0-1");
    const Topology topology = hardware::read_topology(tree.path);
    const std::vector<PciPlace> gpus = gpus_on(machine["gpus"].get<std::vector<int>>());
    for (const NumaBinding binding :
         {NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex}) {
      const std::string mode(spec::to_string(binding));
      CAPTURE(mode);
      const Placement placement = place_workers(binding, static_cast<int64_t>(gpus.size()), topology, gpus);
      CHECK(placement.warning.empty());
      CHECK(placement.binding == binding);
      CHECK(cpus_of(placement) == machine["bindings"][mode].get<Lists>());
    }
  }
}

TEST_CASE("auto shares cores out when GPUs are on several nodes, with the memory of each") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 4, 2, 4);
  const Topology topology = hardware::read_topology(tree.path);
  const Placement placement = place_workers(NumaBinding::kAuto, 2, topology, gpus_on({0, 1}));
  CHECK(placement.workers ==
        std::vector<Binding>{{{0, 1, 2, 3, 8, 9, 10, 11}, {0}, 4}, {{4, 5, 6, 7, 12, 13, 14, 15}, {1}, 4}});
  CHECK(describe(placement) ==
        "exclusive: 0 on CPUs 0-3,8-11, memory of node 0; 1 on CPUs 4-7,12-15, memory of node 1");
  CHECK(place_workers(NumaBinding::kAuto, 2, topology, gpus_on({1, 1})).workers.empty());
  CHECK(place_workers(NumaBinding::kAuto, 1, topology, gpus_on({0, 1})).workers.empty());
  CHECK(describe(place_workers(NumaBinding::kNone, 2, topology, gpus_on({0, 1}))).empty());
}

TEST_CASE("workers without GPUs get equal shares of the cores, within NUMA nodes where that is equal too") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 5, 1, 5);
  const Topology topology = hardware::read_topology(tree.path);
  const auto shares = [&](int64_t n) { return cpus_of(place_workers(NumaBinding::kAuto, n, topology, {})); };
  CHECK(shares(1).empty());
  CHECK(shares(2) == Lists{"0-4", "5-9"});
  CHECK(shares(3) == Lists{"0-3", "4-6", "7-9"});
  CHECK(shares(4) == Lists{"0-2", "3-4", "5-7", "8-9"});
  CHECK(shares(10).back() == "9");
  // More workers than cores: auto leaves them to the scheduler without a word.
  CHECK(shares(11).empty());
  CHECK(place_workers(NumaBinding::kAuto, 11, topology, {}).warning.empty());
  const Placement across = place_workers(NumaBinding::kAuto, 3, topology, {});
  CHECK(across.workers[0].memory_nodes == IdList{0});
  CHECK(across.workers[1].memory_nodes.empty());  // of both nodes: as without binding
}

TEST_CASE("two threads of a core stay with one worker") {
  const MachineTree laptop;
  laptop.add_cpus(1, 1, 4, 2, 4);
  const Topology topology = hardware::read_topology(laptop.path);
  const Placement placement = place_workers(NumaBinding::kAuto, 2, topology, {});
  CHECK(cpus_of(placement) == Lists{"0-1,4-5", "2-3,6-7"});
  CHECK(describe(placement) == "exclusive: 0 on CPUs 0-1,4-5; 1 on CPUs 2-3,6-7");
  CHECK(describe(place_workers(NumaBinding::kExclusive, 8, topology, {})).empty());
  CHECK(describe(place_workers(NumaBinding::kExclusive, 4, topology, {}))
            .starts_with("exclusive: 0 on CPUs 0,4;"));
}

TEST_CASE("nodes, sockets and core complexes are dealt out in order to workers without GPUs") {
  const MachineTree tree;
  tree.add_cpus(2, 2, 4, 1, 2);  // 2 sockets, 4 nodes, 8 core complexes, 16 CPUs
  const Topology topology = hardware::read_topology(tree.path);
  const auto cpus = [&](NumaBinding binding, int64_t n) {
    return cpus_of(place_workers(binding, n, topology, {}));
  };
  CHECK(cpus(NumaBinding::kNode, 4) == Lists{"0-3", "4-7", "8-11", "12-15"});
  CHECK(cpus(NumaBinding::kNode, 2) == Lists{"0-3", "8-11"});
  CHECK(cpus(NumaBinding::kSocket, 4) == Lists{"0-7", "0-7", "8-15", "8-15"});
  CHECK(cpus(NumaBinding::kCoreComplex, 8).at(3) == "6-7");
  CHECK(cpus(NumaBinding::kCoreComplex, 16).at(3) == "2-3");
}

TEST_CASE("a container's cpuset is never left") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 4, 1, 4);
  tree.allow("3-5", "0-1");
  const Topology topology = hardware::read_topology(tree.path);
  CHECK(cpus_of(place_workers(NumaBinding::kAuto, 3, topology, {})) == Lists{"3", "4", "5"});
  CHECK(cpus_of(place_workers(NumaBinding::kNode, 2, topology, gpus_on({0, 1}))) == Lists{"3", "4-5"});
  CHECK(place_workers(NumaBinding::kExclusive, 4, topology, {}).warning ==
        "launch.numa_binding: workers are not bound (exclusive): 4 workers for 3 allowed cores");
  CHECK(place_workers(NumaBinding::kExclusive, 2, topology, gpus_on({0, 0})).warning ==
        "launch.numa_binding: workers are not bound (exclusive): 2 GPUs share the 1 allowed core of NUMA "
        "node 0");
  tree.allow("4-5", "1");
  CHECK(place_workers(NumaBinding::kNode, 1, hardware::read_topology(tree.path), gpus_on({0})).warning ==
        "launch.numa_binding: workers are not bound (node): GPU 0 is on NUMA node 0, of which no CPU is "
        "allowed "
        "(allowed: 4-5)");
}

TEST_CASE("memory is preferred only where it is allowed") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 2, 1, 2);
  tree.allow("0-3", "1");
  const Placement placement =
      place_workers(NumaBinding::kNode, 2, hardware::read_topology(tree.path), gpus_on({0, 1}));
  CHECK(placement.workers[0].memory_nodes.empty());
  CHECK(placement.workers[1].memory_nodes.empty());  // the only one there is
}

TEST_CASE("a GPU without a NUMA node is placed by the CPUs near it, or not at all") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 2, 1, 2);
  const Topology topology = hardware::read_topology(tree.path);
  const PciPlace by_cpus{-1, {2, 3}, {}}, near_all{-1, {0, 1, 2, 3}, {}};
  CHECK(cpus_of(place_workers(NumaBinding::kNode, 1, topology, {by_cpus})) == Lists{"2-3"});
  CHECK(place_workers(NumaBinding::kNode, 2, topology, {by_cpus, near_all}).warning ==
        "launch.numa_binding: workers are not bound (node): the system does not say which NUMA node GPU 1 is "
        "on");
}

TEST_CASE("with fewer GPUs than workers, cores are shared out") {
  const MachineTree tree;
  tree.add_cpus(1, 1, 4, 1, 4);
  CHECK(cpus_of(place_workers(NumaBinding::kAuto, 2, hardware::read_topology(tree.path), gpus_on({0}))) ==
        Lists{"0-1", "2-3"});
}

TEST_CASE("without sysfs nobody is bound, and whoever asked for it is told why") {
  const MachineTree tree;
  tree.allow("0-1", "0");
  const Topology topology = hardware::read_topology(tree.path);
  const Placement asked = place_workers(NumaBinding::kExclusive, 2, topology, {});
  CHECK(asked.workers.empty());
  CHECK(asked.warning == "launch.numa_binding: workers are not bound (exclusive): " + topology.unknown);
  CHECK(place_workers(NumaBinding::kAuto, 2, topology, {}).warning.empty());
}

TEST_CASE("a worker's threads are its share of the usable cores, at most its physical ones") {
  const MachineTree tree;
  tree.add_cpus(1, 1, 8, 2, 4);
  const Topology topology = hardware::read_topology(tree.path);
  const Placement exclusive = place_workers(NumaBinding::kExclusive, 2, topology, {});
  CHECK(worker_threads(exclusive, 0, 2, 16) == 4);
  CHECK(worker_threads(exclusive, 0, 2, 4) == 2);  // a quota of 4 CPUs
  CHECK(worker_threads(exclusive, 0, 2, 1) == 1);
  const Placement node = place_workers(NumaBinding::kNode, 4, topology, {});
  CHECK(worker_threads(node, 3, 4, 16) == 2);  // four workers on the same eight cores
  CHECK(worker_threads({}, 0, 4, 16) == 4);
  CHECK(worker_threads({}, 0, 3, 2) == 1);
}

TEST_CASE("workers placed on this machine run on disjoint CPUs of it") {
  const Topology topology = hardware::read_topology();
  const auto n = std::min<int64_t>(4, static_cast<int64_t>(topology.cores.size()));
  const Placement placement = place_workers(NumaBinding::kExclusive, n, std::vector<hardware::Gpu>{});
  if (!topology.unknown.empty()) {
    CHECK_FALSE(placement.warning.empty());
    return;
  }
  REQUIRE(placement.workers.size() == static_cast<size_t>(n));
  std::set<int> used;
  for (const Binding& worker : placement.workers) {
    process::SpawnOptions options{};
    ::sigemptyset(&options.signal_mask);
    options.cpus = worker.cpus;
    options.memory_nodes = worker.memory_nodes;
    const process::Process child = process::spawn({"grep", "Cpus_allowed_list", "/proc/self/status"},
                                                  {{"PATH", "/usr/bin:/bin"}}, options);
    CHECK(child.binding_error == 0);
    std::string text;
    char buffer[256];
    for (ssize_t got = 1; got != 0;) {
      pollfd wait{child.output.get(), POLLIN, 0};
      ::poll(&wait, 1, -1);
      got = ::read(child.output.get(), buffer, sizeof buffer);
      if (got > 0) text.append(buffer, static_cast<size_t>(got));
    }
    ::waitpid(child.pid, nullptr, 0);
    CHECK(text == "Cpus_allowed_list:\t" + hardware::format_id_list(worker.cpus) + "\n");
    for (const int cpu : worker.cpus) CHECK(used.insert(cpu).second);
  }
}
