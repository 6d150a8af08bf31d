#include "dist/network.h"

#include "core/error.h"
#include "net/address.h"

namespace trainer::dist {

std::string reachable_address(const World& world) {
  if (world.num_nodes == 1) return "127.0.0.1";
  const net::Resolved master = net::resolve(world.master_addr, world.master_port);
  if (!master.error.empty()) {
    fail<DistributedError>("MASTER_ADDR '{}': {}; expected a name or an address that every node can reach",
                           world.master_addr, master.error);
  }
  std::string address;
  for (const net::Address& a : master.addresses) {
    if (address.empty()) address = net::local_address_towards(a);
  }
  if (address.empty()) {
    fail<DistributedError>("MASTER_ADDR '{}': no route to it from this host", world.master_addr);
  }
  // A literal loopback address says that all "nodes" are this host; a name that leads there is a trap of
  // /etc/hosts.
  const bool is_literal = net::is_numeric_address(world.master_addr) || world.master_addr == "localhost";
  if (!is_literal && net::resolve(address, 0).addresses.front().is_loopback()) {
    fail<DistributedError>(
        "MASTER_ADDR '{}' is {} on this host, which the other {} nodes cannot reach; set GLOO_SOCKET_IFNAME "
        "to the "
        "interface between nodes, or MASTER_ADDR to its address",
        world.master_addr, address, world.num_nodes - 1);
  }
  return address;
}

}  // namespace trainer::dist
