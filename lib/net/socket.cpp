#include "net/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace trainer::net {
namespace {

constexpr int kPortTries = 16;  // free on one address, taken on the next

Address any_address(int family, int64_t port) {
  Address a;
  a.storage.ss_family = static_cast<sa_family_t>(family);
  a.size =
      family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);  // INADDR_ANY and in6addr_any are zeros
  return a.with_port(port);
}

// Closed, with errno, when it can't be.
Descriptor try_listen(const Address& address, bool dual_stack) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return socket;
  const int on = 1, v6_only = dual_stack ? 0 : 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // TIME_WAIT of the last job
  if (address.family() == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (::bind(socket.get(), address.raw(), address.size) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

[[noreturn]] void fail_to_listen(const std::string& option, const std::string& where, int64_t port,
                                 int error) {
  std::string hint;
  if (error == EADDRINUSE) {
    const std::string holder = holder_of_port(port);
    hint = fmt::format("{}; choose another port, or 0 for a free one on one node",
                       holder.empty() ? fmt::format("another job may hold it (ss -ltnp 'sport = :{}')", port)
                                      : holder + " holds it");
  } else if (error == EACCES) {
    hint = "ports below 1024 are the system's; choose a higher one";
  } else if (error == EADDRNOTAVAIL) {
    hint = "no interface of this host has this address (ip address)";
  } else {
    hint = "is there a limit on this process or container?";
  }
  fail<DistributedError>("{}: cannot listen on {}port {}: {}\n  hint: {}", option, where, port,
                         std::strerror(error), hint);
}

Descriptor listen_on_all(int64_t port, const std::string& option) {
  Descriptor socket = try_listen(any_address(AF_INET6, port), true);
  if (!socket.is_open() && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {  // a host without IPv6
    socket = try_listen(any_address(AF_INET, port), false);
  }
  if (!socket.is_open()) fail_to_listen(option, "", port, errno);
  return socket;
}

// inode of a socket that listens on the port; empty: none.
std::string listening_inode(const char* table, int64_t port) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // titles
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    columns >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >>
        inode;
    const std::string end = fmt::format(":{:04X}", port);
    if (state == "0A" && local.ends_with(end)) return inode;
  }
  return {};
}

}  // namespace

Descriptor listen_on(int64_t port, bool loopback_only) {
  if (loopback_only) return listen_on("127.0.0.1", port, "launch.master_port");
  return listen_on_all(port, "launch.master_port");
}

Descriptor listen_on(const std::string& address, int64_t port, const std::string& option) {
  if (!is_numeric_address(address)) {
    fail<DistributedError>("{}: cannot listen on \"{}\": expected the digits of an address of this host",
                           option, address);
  }
  Descriptor socket = try_listen(resolve(address, port).addresses.front(), false);
  const bool is_default = address == "127.0.0.1";
  if (!socket.is_open()) fail_to_listen(option, is_default ? "" : address + " ", port, errno);
  return socket;
}

ListeningSockets listen_at(const std::string& host, int64_t port, const std::string& option) {
  return listen_at(host, resolve(host, port), port, option);
}

ListeningSockets listen_at(const std::string& host, const Resolved& resolved, int64_t port,
                           const std::string& option) {
  if (!resolved.error.empty()) {
    fail<DistributedError>("{}: {}: name does not resolve ({})", option, host, resolved.error);
  }
  ListeningSockets out;
  const bool is_trap = host != "localhost" && !is_numeric_address(host) &&
                       std::ranges::all_of(resolved.addresses, &Address::is_loopback);
  if (is_trap) {
    out.warning = fmt::format("{}: {} is the loopback address {} on this host (/etc/hosts)", option, host,
                              resolved.addresses.front().host());
  }
  for (int tries = 0; !is_trap && tries < kPortTries; ++tries) {
    out.sockets.clear();
    int64_t bound_port = port;  // for port 0: the first socket's, for all
    bool is_taken = false;
    for (const Address& address : resolved.addresses) {
      Descriptor socket = try_listen(address.with_port(bound_port), false);
      const int error = errno;
      if (socket.is_open()) {
        bound_port = port_of(socket);
        out.sockets.push_back(std::move(socket));
      } else if (error == EADDRINUSE && port == 0) {
        is_taken = true;
      } else if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) {
        fail_to_listen(option, address.host() + " ", port, error);
      }
    }
    if (!is_taken) break;
  }
  if (out.sockets.empty()) {
    if (out.warning.empty()) {
      out.warning =
          fmt::format("{}: no interface of this host has {}", option, resolved.addresses.front().host());
    }
    out.warning += "; listening on all interfaces";
    out.sockets.push_back(listen_on_all(port, option));
  }
  out.port = port_of(out.sockets.front());
  return out;
}

int64_t port_of(const Descriptor& socket) {
  return local_address_of(socket.get()).port();
}

std::string holder_of_port(int64_t port) {
  namespace fs = std::filesystem;
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return {};
  const std::string wanted = "socket:[" + inode + "]";
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != pid.npos) continue;
    std::error_code error;  // another user's, or gone
    for (fs::directory_iterator fd(process.path() / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
      if (fs::read_symlink(fd->path(), ignored) != wanted) continue;
      std::ifstream file(process.path() / "cmdline");
      std::string command{std::istreambuf_iterator<char>(file), {}};
      while (command.ends_with('\0')) command.pop_back();
      std::ranges::replace(command, '\0', ' ');
      if (command.size() > 80) command = command.substr(0, 77) + "...";
      return fmt::format("pid {} ({})", pid, command);
    }
  }
  return {};
}

}  // namespace trainer::net
