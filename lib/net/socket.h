#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "net/address.h"

namespace trainer::net {

// Listening TCP sockets, close-on-exec. port 0: a free one. All throw DistributedError with the port, the reason and,
// where /proc tells, the process that holds the port; `option` is what the user set it with.

// On all interfaces, IPv4 and IPv6, or on 127.0.0.1 only.
Descriptor listen_on(int64_t port, bool loopback_only);

// On one address of this host, given as digits.
Descriptor listen_on(const std::string& address, int64_t port, const std::string& option);

// Sockets for the endpoint `host`: one for each of the addresses that the name has on this host, on the same port.
struct ListeningSockets {
  std::vector<Descriptor> sockets;
  int64_t port = 0;
  // Not empty when it had to be all interfaces: no interface has the address (NAT, a service's address), or the name
  // is a loopback address here alone (/etc/hosts).
  std::string warning;
};
// Blocks on DNS.
ListeningSockets listen_at(const std::string& host, int64_t port, const std::string& option);
ListeningSockets listen_at(const std::string& host, const Resolved& resolved, int64_t port,
                           const std::string& option);

int64_t port_of(const Descriptor& socket);

// "pid 4711 (python train.py)"; empty when nobody listens there, or the process is another user's.
std::string holder_of_port(int64_t port);

}  // namespace trainer::net
