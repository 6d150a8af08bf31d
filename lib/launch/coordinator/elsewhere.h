#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/event_loop.h"
#include "launch/coordinator/link.h"
#include "launch/coordinator/messages.h"
#include "launch/plan/plan.h"
#include "net/connection.h"

namespace trainer::launch {

// Looks for a coordinator of the same job at the other endpoints, whose nodes went on while the one here was cut off. Asks
// again and again, until it is found or this is destroyed.
class Elsewhere {
 public:
  // `join`: what the one here says of itself. `on_found` is called from the loop, once; it may destroy this.
  Elsewhere(EventLoop& loop, const WorkerPlan& plan, const Endpoint& here, Join join,
            std::function<void(const Endpoint&)> on_found);
  ~Elsewhere();
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

 private:
  struct Other {
    Endpoint endpoint;
    std::unique_ptr<net::Connector> connector;
    std::unique_ptr<Link> link;
    EventLoop::TimerId timer = 0;
  };

  void look(Other& other);
  void ask(Other& other, std::unique_ptr<net::Connection> connection);
  void then(Other& other, double seconds, std::function<void()> call);

  EventLoop& loop_;
  const WorkerPlan& plan_;
  Join join_;
  std::function<void(const Endpoint&)> on_found_;
  std::vector<Other> others_;
};

}  // namespace trainer::launch
