#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "core/descriptor.h"
#include "core/error.h"

namespace trainer::net {
namespace {

const in6_addr& v6_of(const Address& a) {
  return reinterpret_cast<const sockaddr_in6*>(&a.storage)->sin6_addr;
}

// In host byte order; of an IPv4-mapped address too.
bool as_v4(const Address& a, uint32_t& out) {
  if (a.family() == AF_INET) {
    out = ntohl(reinterpret_cast<const sockaddr_in*>(&a.storage)->sin_addr.s_addr);
    return true;
  }
  if (a.family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6_of(a))) return false;
  std::memcpy(&out, v6_of(a).s6_addr + 12, 4);
  out = ntohl(out);
  return true;
}

Address of_sockaddr(const sockaddr* from) {
  Address a;
  a.size = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&a.storage, from, a.size);
  return a;
}

bool same_host(const Address& a, const Address& b) {
  uint32_t v4_a = 0, v4_b = 0;
  const bool is_v4 = as_v4(a, v4_a);
  if (is_v4 != as_v4(b, v4_b)) return false;
  if (is_v4) return v4_a == v4_b;
  return a.family() == b.family() && std::memcmp(&v6_of(a), &v6_of(b), sizeof(in6_addr)) == 0;
}

Resolved resolve(const std::string& host, int64_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Resolved out;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    out.error = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return out;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    const Address address = of_sockaddr(a->ai_addr).with_port(port);
    const auto same = [&](const Address& other) { return same_host(address, other); };
    if (std::ranges::none_of(out.addresses, same)) out.addresses.push_back(address);
  }
  if (out.addresses.empty()) out.error = "no IPv4 or IPv6 address";
  return out;
}

}  // namespace

int64_t Address::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

Address Address::with_port(int64_t port) const {
  Address out = *this;
  const in_port_t value = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&out.storage)->sin_port = value;
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&out.storage)->sin6_port = value;
  return out;
}

bool Address::is_loopback() const {
  if (uint32_t v4 = 0; as_v4(*this, v4)) return v4 >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6_of(*this));
}

bool Address::is_any() const {
  if (uint32_t v4 = 0; as_v4(*this, v4)) return v4 == 0;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6_of(*this));
}

std::string Address::host() const {
  if (uint32_t v4 = 0; as_v4(*this, v4)) {
    return fmt::format("{}.{}.{}.{}", v4 >> 24, v4 >> 16 & 255, v4 >> 8 & 255, v4 & 255);
  }
  char text[NI_MAXHOST] = "";
  ::getnameinfo(raw(), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string Address::text() const {
  return host_port(host(), port());
}

Address local_address_of(int socket) {
  Address a;
  a.size = sizeof a.storage;
  ::getsockname(socket, a.raw(), &a.size);
  return a;
}

std::string host_port(std::string_view host, int64_t port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Resolved resolve(const std::string& host, int64_t port) {
  return resolve(host, port, 0);
}

bool is_numeric_address(const std::string& host) {
  return resolve(host, 0, AI_NUMERICHOST).error.empty();
}

std::vector<Interface> interfaces() {
  std::vector<Interface> out;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return out;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, ::freeifaddrs);
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    auto interface = std::ranges::find(out, std::string_view(i->ifa_name), &Interface::name);
    if (interface == out.end()) {
      interface = out.emplace(out.end());
      interface->name = i->ifa_name;
      interface->is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0;
      interface->is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
      std::ifstream speed("/sys/class/net/" + interface->name +
                          "/speed");  // reading it fails when it is down
      if (int64_t mbps = 0; speed >> mbps && mbps > 0) interface->speed_mbps = mbps;
    }
    if (i->ifa_addr == nullptr) continue;
    if (const int family = i->ifa_addr->sa_family; family == AF_INET || family == AF_INET6) {
      interface->addresses.push_back(of_sockaddr(i->ifa_addr));
    }
  }
  return out;
}

std::string address_of_interface(const std::string& name) {
  std::string known;
  for (const Interface& i : interfaces()) {
    const Address* best = nullptr;
    for (const Address& a : i.addresses) {
      if (a.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6_of(a))) continue;
      if (best == nullptr || (best->family() == AF_INET6 && a.family() == AF_INET)) best = &a;
    }
    if (best != nullptr && i.name == name) return best->host();
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", i.name, best ? best->host() : "no address");
  }
  fail<SpecError>("launch.interface: got \"{}\"; expected an interface of this host that has an address: {}",
                  name, known);
}

bool is_local_address(const std::string& host) {
  char own_name[256] = "";
  ::gethostname(own_name, sizeof own_name - 1);
  if (host == own_name || host == "localhost") return true;
  const std::vector<Address> addresses = resolve(host, 0).addresses;
  const std::vector<Interface> own = interfaces();
  return std::ranges::any_of(addresses, [&](const Address& a) {
    if (a.is_loopback() || a.is_any())
      return true;  // all of 127.0.0.0/8 is, though the interface has 127.0.0.1 only
    return std::ranges::any_of(own, [&](const Interface& i) {
      return std::ranges::any_of(i.addresses, [&](const Address& b) { return same_host(a, b); });
    });
  });
}

std::string local_address_towards(const Address& to) {
  // Connecting a datagram socket sends nothing, but it looks up the route.
  const Descriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || ::connect(socket.get(), to.raw(), to.size) != 0) return {};
  return local_address_of(socket.get()).host();
}

std::string local_address_towards(const std::string& host, int64_t port) {
  const Resolved to = resolve(host, port);
  if (!to.error.empty()) fail<DistributedError>("{}: name does not resolve ({})", host, to.error);
  for (const Address& address : to.addresses) {
    if (std::string own = local_address_towards(address); !own.empty()) return own;
  }
  fail<DistributedError>("{}: no route to {} from this host", host, to.addresses.front().host());
}

}  // namespace trainer::net
