#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::net {

// An IPv4 or IPv6 address and a port.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  int64_t port() const;
  Address with_port(int64_t port) const;
  bool is_loopback() const;
  bool is_any() const;
  std::string host() const;  // digits: "10.0.0.7", "fd00::7"; an IPv4-mapped IPv6 address as IPv4
  std::string text() const;  // "10.0.0.7:29500", "[fd00::7]:29500"
};

Address local_address_of(int socket);

// "host:port", with the brackets that an IPv6 address needs.
std::string host_port(std::string_view host, int64_t port);

// What a name stands for, each address once, in the order of preference; or why it stands for none.
struct Resolved {
  std::vector<Address> addresses;
  std::string error;  // "Name or service not known"
};
// Blocks on DNS for a name, never for digits.
Resolved resolve(const std::string& host, int64_t port);
bool is_numeric_address(const std::string& host);

// One network interface of this host.
struct Interface {
  std::string name;
  std::vector<Address> addresses;
  bool is_up = false;
  bool is_loopback = false;
  int64_t speed_mbps = -1;  // -1: not known (virtual, wireless, down)
};
std::vector<Interface> interfaces();

// The address that peers should use for the interface `name`: its first IPv4 address, else the first IPv6 one that
// is not link-local. Throws SpecError, with the interfaces that there are.
std::string address_of_interface(const std::string& name);

// Whether `host` is this host: its own name, or a name or digits of an address that one of its interfaces has.
// False for a name that does not resolve. Blocks on DNS.
bool is_local_address(const std::string& host);

// The address, as digits, of the interface that routes to `host`. Blocks on DNS. Throws DistributedError when the
// name does not resolve or no route leads there.
std::string local_address_towards(const std::string& host, int64_t port);
// Empty when there is no route.
std::string local_address_towards(const Address& to);

}  // namespace trainer::net
