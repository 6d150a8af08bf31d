#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "core/event_loop.h"
#include "launch/coordinator/messages.h"
#include "net/connection.h"

namespace trainer::launch {

// A connection between a node and its coordinator: messages, and heartbeats both ways, by which each end finds out
// that the other is gone and how far apart their clocks are.
class Link {
 public:
  struct Hooks {
    std::function<void(const Message&)> on_message;
    std::function<void(const std::string& reason)> on_lost;  // once; the link may be destroyed in it
  };

  Link(EventLoop& loop, std::unique_ptr<net::Connection> connection, double heartbeat_s, double timeout_s,
       Hooks hooks);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void send(const Message& message);
  std::string peer_address() const { return connection_->peer_address(); }
  std::string local_address() const { return connection_->local_address(); }

 private:
  void on_frame(std::string_view frame);
  void beat();
  void lose(const std::string& reason);

  EventLoop& loop_;
  std::unique_ptr<net::Connection> connection_;
  double heartbeat_s_, timeout_s_;
  Hooks hooks_;
  EventLoop::TimerId timer_ = 0;
  int64_t last_heard_ns_;
  // The peer's clock minus ours, by the quickest answer so far.
  int64_t clock_offset_ns_ = 0;
  int64_t best_round_trip_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace trainer::launch
