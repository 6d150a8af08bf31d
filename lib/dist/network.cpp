#include "dist/network.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "core/error.h"

namespace trainer::dist {
namespace {

// Source address of a route; connecting a datagram socket sends nothing. Empty when there is no route.
std::string source_address(const addrinfo& to) {
  const int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  char text[NI_MAXHOST] = "";
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  }
  ::close(fd);
  return text;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace

std::string reachable_address(const World& world) {
  if (world.num_nodes == 1) return "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(world.master_port);
  if (const int error = ::getaddrinfo(world.master_addr.c_str(), port.c_str(), &hints, &found); error != 0) {
    fail<DistributedError>("MASTER_ADDR '{}': {}; expected a name or an address that every node can reach",
                           world.master_addr, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  std::string address;
  for (const addrinfo* a = found; a != nullptr && address.empty(); a = a->ai_next)
    address = source_address(*a);
  if (address.empty()) {
    fail<DistributedError>("MASTER_ADDR '{}': no route to it from this host", world.master_addr);
  }
  // A literal loopback address says that all "nodes" are this host; a name that leads there is a trap of
  // /etc/hosts.
  if (is_loopback(address) && !is_loopback(world.master_addr) && world.master_addr != "localhost") {
    fail<DistributedError>(
        "MASTER_ADDR '{}' is {} on this host, which the other {} nodes cannot reach; set GLOO_SOCKET_IFNAME "
        "to the "
        "interface between nodes, or MASTER_ADDR to its address",
        world.master_addr, address, world.num_nodes - 1);
  }
  return address;
}

}  // namespace trainer::dist
