#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
  // Nothing is delivered before this call. Again: from now on with these handlers.
  virtual void start(Handlers handlers) = 0;
  // Queued, and sent as the peer takes it. A peer that leaves 64 MiB unread is lost.
  // Never calls on_lost itself; after a loss it does nothing. Throws DistributedError for a message that is too long.
  virtual void send(std::string_view message) = 0;
  virtual bool all_sent() const = 0;  // is in the system's hands, which go on after this is destroyed
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
// Strangers have 3 s and 1 KiB, 256 of them at a time (then the oldest has to go), and one line of the log a second.
// Several sockets: of the addresses of one name, on one port. Throws SpecError for credentials that no peer could send.
std::unique_ptr<Listener> listen(EventLoop& loop, std::vector<Descriptor> sockets, Credentials credentials,
                                 Listener::OnPeer on_peer);
std::unique_ptr<Listener> listen(EventLoop& loop, Descriptor socket, Credentials credentials,
                                 Listener::OnPeer on_peer);

// Connects to `host`:`port`, at each of the addresses of the name (resolved anew on each try, on a thread of its own),
// trying again after 50 ms to 1 s until `deadline_ns`. Exactly one of the two callbacks is called, later than this
// call, unless the Connector is destroyed before; they may destroy it.
class Connector {
 public:
  struct Handlers {
    std::function<void(std::unique_ptr<Connection>)> on_connected;
    // Why the last try failed, for people: "gpu7:29500: connection refused", "gpu7: name does not resolve",
    // and, at once, not at the deadline: "gpu7:29500 runs another job (id \"a\", ours is \"b\")", "gpu7:29500: the
    // tokens differ (launch.token)", "gpu7:29500: what answers there is not a trainer", another version of trainer.
    std::function<void(const std::string& reason)> on_failed;
  };
  virtual ~Connector() = default;
};
std::unique_ptr<Connector> connect(EventLoop& loop, std::string host, int64_t port, Credentials credentials,
                                   int64_t deadline_ns, Connector::Handlers handlers);

}  // namespace trainer::net
