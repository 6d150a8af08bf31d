#include "launch/plan/network_profile.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "machine_tree.h"

using namespace trainer;
using namespace trainer::launch;
using spec::Network;

namespace {

net::Interface interface(const std::string& name, const std::vector<std::string>& addresses) {
  net::Interface result;
  result.name = name;
  result.is_up = true;
  for (const std::string& address : addresses)
    result.addresses.push_back(net::resolve(address, 0).addresses.at(0));
  return result;
}

hardware::RdmaPort port(const std::string& device, const std::string& link_layer, double rate_gbps,
                        bool active = true) {
  return {device, 1, active, link_layer, rate_gbps, "", {}};
}

NetworkHost server() {
  NetworkHost host;
  host.interfaces = {interface("lo", {"127.0.0.1", "::1"}), interface("eth0", {"10.0.0.2", "fd00::2"}),
                     interface("docker0", {"172.17.0.1"})};
  return host;
}

NetworkQuestion question(Network network = Network::kAuto) {
  return {network, 2, true, "", "10.0.0.2", "route to 10.0.0.1"};
}

using Lines = std::vector<std::string>;

Lines lines(const NetworkQuestion& question, const NetworkHost& host,
            const std::map<std::string, std::string>& env = {}) {
  return describe(network_profile(question, host, env));
}

}  // namespace

TEST_CASE("the interface of the route is named to Gloo and, exactly, to NCCL") {
  CHECK(lines(question(), server()) == Lines{"network: GLOO_SOCKET_IFNAME=eth0 (route to 10.0.0.1)",
                                             "network: NCCL_SOCKET_IFNAME==eth0 (route to 10.0.0.1)"});
}

TEST_CASE("nothing is set on a single node, for launch.network: none, or for NCCL without GPUs") {
  NetworkQuestion single = question();
  single.num_nodes = 1;
  CHECK(lines(single, server()).empty());
  CHECK(lines(question(Network::kNone), server()).empty());
  NetworkQuestion cpu = question(Network::kSocket);
  cpu.uses_gpus = false;
  CHECK(lines(cpu, server()) == Lines{"network: GLOO_SOCKET_IFNAME=eth0 (route to 10.0.0.1)"});
}

TEST_CASE("launch.interface beats the route, and an address that no interface has names none") {
  NetworkQuestion asked = question();
  asked.interface = "docker0";
  CHECK(lines(asked, server())[1] == "network: NCCL_SOCKET_IFNAME==docker0 (launch.interface)");
  asked.interface = "";
  asked.address = "127.0.1.1";
  CHECK(lines(asked, server()).empty());
  asked.address = "";
  CHECK(lines(asked, server()).empty());
}

TEST_CASE("NCCL is told when the nodes meet over IPv6") {
  NetworkQuestion asked = question();
  asked.address = "fd00::2";
  asked.address_from = "route to fd00::1";
  CHECK(lines(asked, server()).back() == "network: NCCL_SOCKET_FAMILY=AF_INET6 (route to fd00::1)");
  asked.interface = "eth0";
  CHECK(lines(asked, server()).back() == "network: NCCL_SOCKET_FAMILY=AF_INET6 (launch.interface)");
}

TEST_CASE("what the user or the administrator set is left as it is") {
  NetworkHost host = server();
  host.ports = {port("mlx5_0", "InfiniBand", 400)};
  CHECK(lines(question(), host, {{"NCCL_SOCKET_IFNAME", "eth"}, {"GLOO_SOCKET_IFNAME", ""}}) ==
        Lines{"network: NCCL_IB_HCA==mlx5_0:1 (1 active InfiniBand port of 400 Gb/s)"});
  host.configured = {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"};
  CHECK(lines(question(), host) == Lines{"network: GLOO_SOCKET_IFNAME=eth0 (route to 10.0.0.1)"});
}

TEST_CASE("of a GPU server's adapters the fastest active ones of one kind are used") {
  NetworkHost host = server();
  host.ports = {port("mlx5_0", "InfiniBand", 400), port("mlx5_1", "InfiniBand", 400),
                port("mlx5_2", "InfiniBand", 200), port("mlx5_3", "InfiniBand", 400, false),
                port("mlx5_4", "Ethernet", 400),   port("efa_0", "Unknown", 100)};
  CHECK(lines(question(), host).at(2) ==
        "network: NCCL_IB_HCA==mlx5_0:1,mlx5_1:1 (2 active InfiniBand ports of 400 Gb/s; without mlx5_2:1 "
        "InfiniBand "
        "200 Gb/s, mlx5_3:1 not active, mlx5_4:1 Ethernet 400 Gb/s, efa_0:1 Unknown 100 Gb/s)");
  host.ports = {port("mlx5_4", "Ethernet", 100)};
  CHECK(lines(question(Network::kInfiniband), host).at(2) ==
        "network: NCCL_IB_HCA==mlx5_4:1 (1 active RoCE port of 100 Gb/s)");
}

TEST_CASE("socket keeps NCCL off the adapters") {
  NetworkHost host = server();
  CHECK(lines(question(Network::kSocket), host).at(2) == "network: NCCL_NET=Socket (launch.network: socket)");
  host.ports = {port("mlx5_0", "InfiniBand", 400)};
  CHECK(lines(question(Network::kSocket), host).at(3) ==
        "network: NCCL_IB_DISABLE=1 (launch.network: socket)");
}

TEST_CASE("infiniband without a port is warned about, auto is not") {
  NetworkHost host = server();
  CHECK(network_profile(question(), host, {}).warning.empty());
  CHECK(network_profile(question(Network::kInfiniband), host, {}).warning ==
        "launch.network: infiniband, but this host has no active InfiniBand or RoCE port "
        "(/sys/class/infiniband is "
        "empty); NCCL will use sockets\n  hint: see ibstat; a container needs --device=/dev/infiniband");
  host.ports = {port("mlx5_0", "InfiniBand", 400, false), port("efa_0", "Unknown", 100)};
  CHECK_THAT(network_profile(question(Network::kInfiniband), host, {}).warning,
             Catch::Contains("(mlx5_0:1 not active, efa_0:1 Unknown)"));
}

TEST_CASE("a virtual machine that hides its switches needs the host bridge for GPUDirect") {
  const MachineTree tree;
  tree.add_pci("pci0000:00", "0000:00:05.0", 0);
  tree.add_pci("pci0000:00", "0000:00:06.0", 0);
  tree.add_rdma_port("mlx5_0", "0000:00:06.0", "4: ACTIVE", "InfiniBand", "200 Gb/sec (4X HDR)");
  tree.write("sys/module/nvidia_peermem/refcnt", "0\n");
  tree.write("proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
  hardware::Gpu gpu;
  gpu.pci_id = "0000:00:05.0";
  const std::string line =
      "network: NCCL_NET_GDR_LEVEL=PHB (a virtual machine, which hides the switches between GPUs and "
      "adapters)";
  const NetworkHost host = read_network_host({gpu}, tree.path);
  CHECK_FALSE(host.interfaces.empty());  // this machine's
  CHECK(lines(question(), host).back() == line);
  CHECK(lines(question(), host, {{"NCCL_TOPO_FILE", "/etc/topology.xml"}}).back() != line);

  tree.write("var/run/nvidia-topologyd/virtualTopology.xml", "<system/>");
  CHECK(lines(question(), read_network_host({gpu}, tree.path)).back() != line);
  std::filesystem::remove_all(tree.path / "var");
  std::filesystem::remove_all(tree.path / "sys/module");
  CHECK(lines(question(), read_network_host({gpu}, tree.path)).back() != line);
  tree.write("sys/module/nvidia_peermem/refcnt", "0\n");
  tree.write("proc/cpuinfo", "flags\t\t: fpu\n");
  CHECK(lines(question(), read_network_host({gpu}, tree.path)).back() != line);
}

TEST_CASE("variables of NCCL's configuration files count as set") {
  const MachineTree tree;
  tree.write("etc/nccl.conf", "# site\nNCCL_SOCKET_IFNAME==bond0\nNCCL_DEBUG=WARN\n");
  const std::string own = tree.write("own.conf", "NCCL_IB_HCA=mlx5\n");
  ::setenv("NCCL_CONF_FILE", own.c_str(), 1);
  CHECK(read_network_host({}, tree.path).configured ==
        std::set<std::string>{"NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"});
  ::unsetenv("NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  const std::string old = home == nullptr ? "" : home;
  ::setenv("HOME", "/home/user", 1);
  tree.write("home/user/.nccl.conf", "NCCL_ALGO=Ring\n");
  CHECK(read_network_host({}, tree.path).configured.contains("NCCL_ALGO"));
  ::setenv("HOME", old.c_str(), 1);
}

TEST_CASE("NCCL's ways of naming interfaces are understood") {
  const Lines all{"lo", "eth0", "eth1", "eth10", "docker0"};
  CHECK(select_as_nccl("eth", all) == Lines{"eth0", "eth1", "eth10"});
  CHECK(select_as_nccl("eth1", all) == Lines{"eth1", "eth10"});
  CHECK(select_as_nccl("=eth1", all) == Lines{"eth1"});
  CHECK(select_as_nccl("=eth0,docker0", all) == Lines{"eth0", "docker0"});
  CHECK(select_as_nccl("^docker,lo", all) == Lines{"eth0", "eth1", "eth10"});
  CHECK(select_as_nccl("^=eth1", all) == Lines{"lo", "eth0", "eth10", "docker0"});
  CHECK(select_as_nccl("=eth0:1", all) == Lines{"eth0"});
  CHECK(select_as_nccl("ib", all).empty());
}
