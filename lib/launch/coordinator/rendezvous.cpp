#include "launch/coordinator/rendezvous.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "net/address.h"

namespace trainer::launch {
namespace {

// A node that may host waits so long for an answer of the other endpoints, and those after it for it.
constexpr double kAskOthersS = 2, kTurnS = 3;

}  // namespace

Rendezvous::Rendezvous(EventLoop& loop, const WorkerPlan& plan, int lost, Hooks hooks)
    : loop_(loop),
      plan_(plan),
      hooks_(std::move(hooks)),
      deadline_ns_(monotonic_ns() + to_ns(plan.join_timeout_s)) {
  const std::vector<Endpoint>& endpoints = plan_.endpoints;
  connectors_.resize(endpoints.size());
  if (plan_.node_rank == 0 && plan_.is_fixed()) {
    loop_.defer([this] { host(0); });
    return;
  }
  if (plan_.is_fixed()) {
    connect(0);
    return;
  }
  bool may_host = false;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (!may_host && net::is_local_address(endpoints[i].host)) {
      may_host = true;
      const double wait_s = endpoints.size() == 1 ? 0
                            : i == 0              ? kAskOthersS
                            : lost >= 0           ? kAskOthersS + kTurnS * static_cast<double>(i)
                                                  : plan_.join_timeout_s;
      timers_.push_back(loop_.after(wait_s, [this, i] {
        if (!host(i)) connect(i);  // another agent of this machine does
      }));
    } else {
      connect(i);
    }
  }
}

Rendezvous::~Rendezvous() {
  end();
}

void Rendezvous::end() {
  over_ = true;
  for (const EventLoop::TimerId timer : timers_) loop_.cancel(timer);
}

void Rendezvous::connect(size_t index) {
  const Endpoint endpoint = plan_.endpoints[index];
  connectors_[index] =
      net::connect(loop_, endpoint.host, endpoint.port, {plan_.run_id, plan_.token}, deadline_ns_,
                   {[this, endpoint](std::unique_ptr<net::Connection> connection) {
                      if (over_) return;
                      end();
                      hooks_.on_connected(std::move(connection), endpoint);
                    },
                    [this](const std::string& reason) {
                      if (over_) return;
                      last_reason_ = reason;
                      ++failed_;
                      if (failed_ < plan_.endpoints.size())
                        return;  // another endpoint may answer, or be hosted here
                      end();
                      hooks_.on_failed(last_reason_);
                    }});
}

bool Rendezvous::host(size_t index) {
  if (over_) return true;
  const Endpoint& endpoint = plan_.endpoints[index];
  try {
    net::ListeningSockets sockets = net::listen_at(
        endpoint.host, endpoint.port, plan_.is_fixed() ? "launch.master_port" : "launch.rdzv_endpoint");
    end();
    hooks_.on_host(std::move(sockets), endpoint);
    return true;
  } catch (const DistributedError& error) {
    if (!plan_.is_fixed()) return false;
    end();
    hooks_.on_failed(error.what());
    return true;
  }
}

}  // namespace trainer::launch
