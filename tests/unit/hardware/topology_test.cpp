#include "hardware/topology.h"

#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "machine_tree.h"

using namespace trainer::hardware;

TEST_CASE("the kernel's lists are read and written") {
  CHECK(parse_id_list("0-2,7,9-10") == IdList{0, 1, 2, 7, 9, 10});
  CHECK(parse_id_list("").empty());
  CHECK(parse_id_list("\n").empty());
  CHECK(parse_id_list("5,3-4,4") == IdList{3, 4, 5});
  CHECK(parse_id_list("1,x,3") == IdList{1});
  CHECK(parse_id_list("1-").empty());
  CHECK(parse_id_list("0-99999999").empty());
  CHECK(format_id_list({0, 1, 2, 7, 9, 10}) == "0-2,7,9-10");
  CHECK(format_id_list({}).empty());
  CHECK(intersection({0, 1, 4, 6}, {1, 2, 6}) == IdList{1, 6});
}

TEST_CASE("this machine's topology is what the system calls say") {
  const Topology topology = read_topology();
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  IdList allowed;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) allowed.push_back(i);
  }
  CHECK(topology.cpus == allowed);
  size_t in_cores = 0;
  for (const Core& core : topology.cores) in_cores += core.cpus.size();
  CHECK(in_cores == allowed.size());
}

TEST_CASE("two sockets with two threads a core") {
  const MachineTree tree;
  tree.add_cpus(2, 1, 4, 2, 4);
  const Topology topology = read_topology(tree.path);
  CHECK(topology.unknown.empty());
  CHECK(topology.memory_nodes == IdList{0, 1});
  CHECK(topology.numa_nodes() == IdList{0, 1});
  REQUIRE(topology.cores.size() == 8);
  CHECK(topology.cores[0] == Core{{0, 8}, 0, 0, 0});
  CHECK(topology.cores[3] == Core{{3, 11}, 0, 0, 0});
  CHECK(topology.cores[4] == Core{{4, 12}, 1, 1, 4});
}

TEST_CASE("one socket of two NUMA nodes and four core complexes") {
  const MachineTree tree;
  tree.add_cpus(1, 2, 4, 1, 2);
  const Topology topology = read_topology(tree.path);
  REQUIRE(topology.cores.size() == 8);
  CHECK(topology.cores[3] == Core{{3}, 0, 0, 2});
  CHECK(topology.cores[5] == Core{{5}, 0, 1, 4});
  CHECK(topology.cores[7] == Core{{7}, 0, 1, 6});
}

TEST_CASE("a container's cpuset leaves its CPUs only, single threads of cores too") {
  const MachineTree tree;
  tree.add_cpus(1, 1, 4, 2, 4);
  tree.allow("3-5", "0");
  const Topology topology = read_topology(tree.path);
  CHECK(topology.cpus == IdList{3, 4, 5});
  REQUIRE(topology.cores.size() == 3);
  CHECK(topology.cores[0] == Core{{3}, 0, 0, 0});
  CHECK(topology.cores[1] == Core{{4}, 0, 0, 0});  // of core 0, whose other thread is CPU 0
}

TEST_CASE("CPUs and memory nodes that are not online are left out") {
  const MachineTree tree;
  tree.add_cpus(1, 1, 2, 1, 2);
  tree.allow("0-127", "0-63");
  CHECK(read_topology(tree.path).cpus == IdList{0, 1});
  CHECK(read_topology(tree.path).memory_nodes == IdList{0});
}

TEST_CASE("without sysfs each CPU is a core, and it is said what is missing") {
  const MachineTree tree;
  tree.allow("2-3", "0");
  const Topology topology = read_topology(tree.path);
  CHECK(topology.unknown ==
        (tree.path / "sys/devices/system/cpu/cpu2/topology/thread_siblings_list").string() +
            " cannot be read");
  CHECK(topology.cores == std::vector<Core>{{{2}, 0, 0, 2}, {{3}, 0, 0, 2}});

  const TemporaryDirectory empty;
  CHECK(read_topology(empty.path).unknown ==
        (empty.path / "proc/self/status").string() + " does not say which CPUs are allowed");
  CHECK(read_topology(empty.path).cores.empty());
}

TEST_CASE("a PCI device has a NUMA node, near CPUs and a way through switches") {
  const MachineTree tree;
  tree.add_pci("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0", "0000:83:00.0", 1, "8-15");
  tree.add_pci("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0", "0000:84:00.0", 1);
  tree.add_pci("pci0000:80/0000:80:02.0", "0000:85:00.0", -1);
  tree.add_pci("pci0000:00/0000:00:01.0", "0000:01:00.0", 0);
  const PciPlace gpu = pci_place("0000:83:00.0", tree.path);
  CHECK(gpu.numa_node == 1);
  CHECK(gpu.local_cpus == IdList{8, 9, 10, 11, 12, 13, 14, 15});
  const PciPlace near = pci_place("0000:84:00.0", tree.path);
  const PciPlace far = pci_place("0000:85:00.0", tree.path);
  const PciPlace absent = pci_place("0000:99:00.0", tree.path);
  CHECK(share_pci_switch(gpu, near));
  CHECK_FALSE(share_pci_switch(gpu, far));
  CHECK_FALSE(share_pci_switch(gpu, pci_place("0000:01:00.0", tree.path)));
  CHECK(far.numa_node == -1);
  CHECK(absent.numa_node == -1);
  CHECK_FALSE(share_pci_switch(absent, absent));
  CHECK_FALSE(share_pci_switch(gpu, pci_place("", tree.path)));
}

TEST_CASE("InfiniBand and RoCE ports are listed with their state, rate and interface") {
  const MachineTree tree;
  tree.add_pci("pci0000:00/0000:00:01.0", "0000:01:00.0", 0);
  tree.add_pci("pci0000:80/0000:80:01.0", "0000:81:00.0", 1);
  tree.add_rdma_port("mlx5_10", "0000:01:00.0", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)", "ib0");
  tree.add_rdma_port("mlx5_2", "0000:81:00.0", "1: DOWN", "Ethernet", "40 Gb/sec (4X QDR)");
  const std::vector<RdmaPort> ports = rdma_ports(tree.path);
  REQUIRE(ports.size() == 2);
  CHECK(ports[0].device == "mlx5_2");
  CHECK_FALSE(ports[0].active);
  CHECK(ports[0].link_layer == "Ethernet");
  CHECK(ports[0].place.numa_node == 1);
  CHECK(ports[1].device == "mlx5_10");
  CHECK(ports[1].port == 1);
  CHECK(ports[1].active);
  CHECK(ports[1].link_layer == "InfiniBand");
  CHECK(ports[1].rate_gbps == 400);
  CHECK(ports[1].interface == "ib0");
  CHECK(ports[1].place.path.filename() == "0000:01:00.0");

  const TemporaryDirectory empty;
  CHECK(rdma_ports(empty.path).empty());
}

TEST_CASE("the GPU driver's peer memory module and the hypervisor are seen") {
  const MachineTree tree;
  CHECK_FALSE(has_peer_memory_module(tree.path));
  CHECK_FALSE(is_virtual_machine(tree.path));
  tree.write("sys/module/nvidia_peermem/refcnt", "0\n");
  tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor\n");
  CHECK(has_peer_memory_module(tree.path));
  CHECK(is_virtual_machine(tree.path));
  tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme lahf_lm\n");
  CHECK_FALSE(is_virtual_machine(tree.path));
}
