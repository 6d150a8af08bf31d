#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hardware/topology.h"
#include "temporary_directory.h"

// The parts of /sys and /proc that tell how a machine is arranged, for machines that tests can't run on.
struct MachineTree : TemporaryDirectory {
  // `nodes_per_socket` NUMA nodes of `cores_per_node` cores, caches shared by `cores_per_cache`. CPUs are
  // numbered as Linux does: first threads of all cores, then second threads.
  void add_cpus(int sockets, int nodes_per_socket, int cores_per_node, int threads,
                int cores_per_cache) const {
    const int cores = sockets * nodes_per_socket * cores_per_node;
    const auto threads_of = [&](int first_core, int count) {
      trainer::hardware::IdList cpus;
      for (int thread = 0; thread < threads; ++thread) {
        for (int core = first_core; core < first_core + count; ++core) cpus.push_back(thread * cores + core);
      }
      return trainer::hardware::format_id_list(cpus);
    };
    for (int cpu = 0; cpu < cores * threads; ++cpu) {
      const int core = cpu % cores;
      const std::string directory = fmt::format("sys/devices/system/cpu/cpu{}/", cpu);
      write(directory + "topology/thread_siblings_list", threads_of(core, 1) + "\n");
      write(directory + "topology/physical_package_id",
            fmt::format("{}\n", core / (nodes_per_socket * cores_per_node)));
      const auto cache = [&](int index, int level, const char* type, const std::string& shared) {
        const std::string name = fmt::format("{}cache/index{}/", directory, index);
        write(name + "level", fmt::format("{}\n", level));
        write(name + "type", fmt::format("{}\n", type));
        write(name + "shared_cpu_list", shared + "\n");
      };
      cache(0, 1, "Data", threads_of(core, 1));
      cache(1, 1, "Instruction", threads_of(core, 1));
      cache(2, 2, "Unified", threads_of(core, 1));
      cache(3, 3, "Unified", threads_of(core / cores_per_cache * cores_per_cache, cores_per_cache));
    }
    const int nodes = sockets * nodes_per_socket;
    for (int node = 0; node < nodes; ++node) {
      write(fmt::format("sys/devices/system/node/node{}/cpulist", node),
            threads_of(node * cores_per_node, cores_per_node) + "\n");
    }
    write("sys/devices/system/node/has_memory", nodes == 1 ? "0\n" : fmt::format("0-{}\n", nodes - 1));
    const std::string all = fmt::format("0-{}\n", cores * threads - 1);
    write("sys/devices/system/cpu/online", all);
    allow(all, fmt::format("0-{}\n", nodes - 1));
  }

  void allow(const std::string& cpus, const std::string& memory_nodes) const {
    write("proc/self/status", "Name:\ttrainer\nCpus_allowed:\tff\nCpus_allowed_list:\t" + cpus +
                                  "\nMems_allowed:\t1\nMems_allowed_list:\t" + memory_nodes + "\n");
  }

  // A device at the end of `bridges`, "pci0000:80/0000:80:01.0" say; its ID is the last of the two arguments.
  void add_pci(const std::string& bridges, const std::string& id, int numa_node,
               const std::string& local_cpus = "") const {
    const std::string directory = "sys/devices/" + bridges + "/" + id;
    write(directory + "/numa_node", fmt::format("{}\n", numa_node));
    write(directory + "/local_cpulist", local_cpus + "\n");
    const std::filesystem::path link = path / "sys/bus/pci/devices" / id;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink(path / directory, link);
  }

  // A port of an adapter whose PCI device was added.
  void add_rdma_port(const std::string& device, const std::string& id, const std::string& state,
                     const std::string& link_layer, const std::string& rate,
                     const std::string& interface = "") const {
    const std::string directory = "sys/class/infiniband/" + device;
    write(directory + "/ports/1/state", state + "\n");
    write(directory + "/ports/1/link_layer", link_layer + "\n");
    write(directory + "/ports/1/rate", rate + "\n");
    if (!interface.empty()) write(directory + "/ports/1/gid_attrs/ndevs/0", interface + "\n");
    std::filesystem::create_symlink(path / "sys/bus/pci/devices" / id, path / directory / "device");
  }
};
