#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer::net {

Descriptor listen_on(int64_t port, bool loopback_only) {
  // Dual-stack on all interfaces; a node without IPv6 has only the other.
  Descriptor socket(::socket(loopback_only ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = !loopback_only && socket.is_open();
  if (!socket.is_open()) socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // TIME_WAIT of the last job
  sockaddr_in v4_address{};
  v4_address.sin_family = AF_INET;
  v4_address.sin_port = htons(static_cast<uint16_t>(port));
  v4_address.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 v6_address{};
  v6_address.sin6_family = AF_INET6;
  v6_address.sin6_port = htons(static_cast<uint16_t>(port));
  v6_address.sin6_addr = in6addr_any;
  if (v6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const int bound =
      v6 ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v6_address), sizeof v6_address)
         : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v4_address), sizeof v4_address);
  if (bound != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    fail<DistributedError>(
        "launch.master_port: cannot listen on port {}: {}\n  hint: another job may hold it (ss -ltnp "
        "'sport = :{}'); choose another port, or 0 for a free one on one node",
        port, std::strerror(errno), port);
  }
  return socket;
}

int64_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);  // the port is at the same place in both
  return ntohs(v6->sin6_port);
}

}  // namespace trainer::net
