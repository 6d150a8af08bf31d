#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/event_loop.h"
#include "net/connection.h"
#include "net/socket.h"

namespace net_test {

using trainer::Descriptor;
using trainer::EventLoop;
using trainer::monotonic_ns;
using namespace trainer::net;

inline int64_t in_s(double seconds) {
  return monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
}

// Runs the loop until `condition`; false when it has not become true in a time that is long for a loaded machine.
inline bool run_until(EventLoop& loop, const std::function<bool()>& condition, double limit_s = 60) {
  const int64_t end_ns = in_s(limit_s);
  while (!condition()) {
    if (monotonic_ns() > end_ns) return false;
    loop.run_once(50'000'000);
  }
  return true;
}

inline void run_for(EventLoop& loop, double seconds) {
  const int64_t end_ns = in_s(seconds);
  while (monotonic_ns() < end_ns) loop.run_once(5'000'000);
}

inline size_t num_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// A listener on 127.0.0.1 and those who came.
struct Server {
  explicit Server(EventLoop& loop, Credentials credentials = {"job", "secret"},
                  const std::string& address = "127.0.0.1")
      : listener(listen(loop, listen_on(address, 0, "port"), std::move(credentials),
                        [this](std::unique_ptr<Connection> peer) { peers.push_back(std::move(peer)); })) {}
  int64_t port() const { return listener->port(); }
  std::vector<std::unique_ptr<Connection>> peers;
  std::unique_ptr<Listener> listener;
};

// A connector and what came of it.
struct Client {
  Client(EventLoop& loop, const std::string& host, int64_t port, Credentials credentials = {"job", "secret"},
         double limit_s = 60)
      : connector(connect(loop, host, port, std::move(credentials), in_s(limit_s),
                          {[this](std::unique_ptr<Connection> c) { connection = std::move(c); },
                           [this](const std::string& r) { reason = r; }})) {}
  bool is_over() const { return connection != nullptr || !reason.empty(); }
  std::unique_ptr<Connection> connection;
  std::string reason;
  std::unique_ptr<Connector> connector;
};

// What one end of a connection has got.
struct Inbox {
  void attach(Connection& to) {
    to.start({[this](std::string_view m) { messages.emplace_back(m); },
              [this](const std::string& r) {
                ++num_lost;
                lost = r;
              }});
  }
  std::vector<std::string> messages;
  std::string lost;
  int num_lost = 0;
};

// Both ends of an authenticated connection.
struct Pair {
  explicit Pair(EventLoop& loop, const std::string& address = "127.0.0.1")
      : server(loop, {"job", "secret"}, address), client(loop, address, server.port()) {
    REQUIRE(run_until(loop, [&] { return client.is_over() && !server.peers.empty(); }));
    REQUIRE(client.reason.empty());
  }
  Connection& near() { return *client.connection; }
  Connection& far() { return *server.peers.front(); }
  Server server;
  Client client;
};

// A plain blocking TCP connection to 127.0.0.1, for what no trainer does.
inline Descriptor plain_connect(int64_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return socket;
}

inline void plain_send(const Descriptor& socket, std::string_view bytes) {
  [[maybe_unused]] const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Without waiting; empty when there is nothing.
inline std::string plain_receive(const Descriptor& socket) {
  std::string out(65536, '\0');
  const ssize_t n = ::recv(socket.get(), out.data(), out.size(), MSG_DONTWAIT);
  out.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return out;
}

inline bool is_closed(const Descriptor& socket) {
  char byte = 0;
  const ssize_t n = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

inline void reset(Descriptor& socket) {
  const linger now{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.reset();
}

// Keeps what is written to standard error while it lives.
class CapturedErrors {
 public:
  CapturedErrors() : file_(::memfd_create("stderr", MFD_CLOEXEC)), before_(::dup(2)) {
    ::dup2(file_.get(), 2);
  }
  ~CapturedErrors() { ::dup2(before_.get(), 2); }
  std::string text() const {
    std::string out(1 << 20, '\0');
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), 0);
    out.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return out;
  }

 private:
  Descriptor file_, before_;
};

}  // namespace net_test
