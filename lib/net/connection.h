#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/descriptor.h"
#include "core/event_loop.h"

// The control plane's connections: between agents of one job, over TCP, within one event loop, never blocking. A
// message is any bytes up to kMaxMessageBytes. Both ends prove in the handshake that they know the job's id and
// its token; until then a peer is a stranger, who can neither stop nor stall the job.

namespace trainer::net {

constexpr size_t kMaxMessageBytes = 8 << 20;

// What both ends must share. The token may be empty: then the id alone keeps apart jobs that meet by mistake.
struct Credentials {
  std::string job_id;
  std::string token;
};

// An open connection to a peer that is known.
class Connection {
 public:
  struct Handlers {
    std::function<void(std::string_view message)> on_message;
    // Once, not for close(): "closed by the peer", "connection reset by peer", ...; destroy it in the call or later.
    std::function<void(const std::string& reason)> on_lost;
  };

  virtual ~Connection() = default;
  // Nothing is delivered before this call.
  virtual void start(Handlers handlers) = 0;
  // Queued, and sent as the peer takes it. A peer that leaves 64 MiB unread is lost.
  virtual void send(std::string_view message) = 0;
  virtual bool all_sent() const = 0;
  // "10.0.0.7:41234", "[fd00::7]:41234"
  virtual std::string peer_address() const = 0;
  virtual std::string local_address() const = 0;  // without the port
};

// Accepts peers on a listening socket.
class Listener {
 public:
  using OnPeer = std::function<void(std::unique_ptr<Connection>)>;
  virtual ~Listener() = default;
  virtual int64_t port() const = 0;
};
std::unique_ptr<Listener> listen(EventLoop& loop, Descriptor socket, Credentials credentials,
                                 Listener::OnPeer on_peer);

// Connects to `host`:`port` (a name is resolved anew on each try, on a thread of its own), trying again until
// `deadline_ns`. Exactly one of the two callbacks is called, unless it is destroyed before.
class Connector {
 public:
  struct Handlers {
    std::function<void(std::unique_ptr<Connection>)> on_connected;
    // Why the last try failed, for people: "gpu7:29500: connection refused", "gpu7: name does not resolve",
    // "gpu7:29500 runs another job (id \"a\", ours is \"b\")", "gpu7:29500: the tokens differ (launch.token)".
    // The last two are final: they are told at once, not at the deadline.
    std::function<void(const std::string& reason)> on_failed;
  };
  virtual ~Connector() = default;
};
std::unique_ptr<Connector> connect(EventLoop& loop, std::string host, int64_t port, Credentials credentials,
                                   int64_t deadline_ns, Connector::Handlers handlers);

}  // namespace trainer::net
