#include "dist/store_host.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/error.h"
#include "dist/failure.h"

namespace trainer::dist {
namespace {

struct Address {
  std::string host;  // digits
  uint16_t port = 0;
};

std::string digits(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  return host;
}

// Where this host reaches the socket: c10d's server is also its own first client.
Address address_of(int listening_fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  const bool is_socket = ::getsockopt(listening_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0;
  sockaddr_storage address{};
  size = sizeof address;
  if (!is_socket || ::getsockname(listening_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail<DistributedError>("TRAINER_STORE_FD: descriptor {}: {}; expected a listening socket", listening_fd,
                           std::strerror(errno));
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (listening == 0 || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    fail<DistributedError>("TRAINER_STORE_FD: descriptor {} is no TCP socket that listens", listening_fd);
  }
  if (address.ss_family == AF_INET) {
    const bool any = v4->sin_addr.s_addr == htonl(INADDR_ANY);
    return {any ? "127.0.0.1" : digits(address, size), ntohs(v4->sin_port)};
  }
  int v6_only = 0;
  socklen_t option_size = sizeof v6_only;
  ::getsockopt(listening_fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &option_size);
  if (!IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) return {digits(address, size), ntohs(v6->sin6_port)};
  return {v6_only != 0 ? "::1" : "127.0.0.1", ntohs(v6->sin6_port)};  // a host may lack ::1
}

}  // namespace

void serve_store(int listening_fd) {
  const Address address = address_of(listening_fd);
  rlimit files{};  // one a client
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  quiet_c10d();
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listening_fd;
  try {
    const c10d::TCPStore store(address.host, options);
    for (;;) ::pause();
  } catch (const std::exception& e) {
    fail<DistributedError>("cannot serve the job's store at {}:{}: {}", address.host, address.port,
                           first_line(e));
  }
}

}  // namespace trainer::dist
