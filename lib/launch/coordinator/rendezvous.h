#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/event_loop.h"
#include "launch/plan/plan.h"
#include "net/connection.h"
#include "net/socket.h"

namespace trainer::launch {

// Finds the coordinator of a job of several nodes, or finds that it belongs here. With a fixed number of nodes node 0
// hosts it. Else whoever has the address of the first endpoint does; the second when the first is lost; a node that
// comes back asks the other endpoints first, so that it joins the job where it is now.
class Rendezvous {
 public:
  struct Hooks {
    std::function<void(net::ListeningSockets, const Endpoint&)> on_host;
    std::function<void(std::unique_ptr<net::Connection>, const Endpoint&)> on_connected;
    std::function<void(const std::string& reason)> on_failed;
  };

  // `lost`: the endpoint whose coordinator was just lost; -1: this is the beginning.
  Rendezvous(EventLoop& loop, const WorkerPlan& plan, int lost, Hooks hooks);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

 private:
  void connect(size_t index);
  bool host(size_t index);
  void end();

  EventLoop& loop_;
  const WorkerPlan& plan_;
  Hooks hooks_;
  int64_t deadline_ns_;
  std::vector<std::unique_ptr<net::Connector>> connectors_;  // one per endpoint; null: not tried
  std::vector<EventLoop::TimerId> timers_;
  std::string last_reason_;
  size_t failed_ = 0;
  bool over_ = false;
};

}  // namespace trainer::launch
