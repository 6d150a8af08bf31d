#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/descriptor.h"
#include "core/event_loop.h"
#include "net/address.h"
#include "net/connection.h"
#include "net/failure.h"
#include "net/handshake.h"

namespace trainer::net {

// A connected, non-blocking socket while the handshake goes on.
class PendingPeer {
 public:
  struct Outcome {
    std::unique_ptr<Connection> connection;  // null: `failure` says why
    Failure failure;
    std::string peer;
    bool was_silent = false;  // it had sent no byte
  };
  // `on_over` is called once, by the loop, and may destroy this.
  PendingPeer(EventLoop& loop, Descriptor socket, const Address& peer, Role role,
              const Credentials& credentials, int64_t deadline_ns, std::function<void(Outcome)> on_over);
  ~PendingPeer();
  PendingPeer(const PendingPeer&) = delete;
  PendingPeer& operator=(const PendingPeer&) = delete;

 private:
  void on_readable();
  void send_output();
  // The last thing that a member does.
  void end(std::unique_ptr<Connection> connection, Failure failure);

  EventLoop& loop_;
  Descriptor socket_;
  std::string peer_;
  Role role_;
  Handshake handshake_;
  std::function<void(Outcome)> on_over_;
  EventLoop::TimerId timer_ = 0;
  size_t num_received_ = 0;
  int64_t begin_ns_;
};

// What a handshake made of a socket; `received` has arrived on it already.
std::unique_ptr<Connection> make_connection(EventLoop& loop, Descriptor socket, std::string peer,
                                            std::string received);

// For every socket of the control plane: no delay of small messages, and a peer that vanished is noticed by the system
// too, after at most 30 s (the agents' heartbeats are sooner).
void set_control_options(int socket);

}  // namespace trainer::net
