#include "launch/coordinator/elsewhere.h"

#include <string>
#include <utility>

#include "core/clock.h"

namespace trainer::launch {
namespace {

constexpr double kAgainS = 2;

}  // namespace

Elsewhere::Elsewhere(EventLoop& loop, const WorkerPlan& plan, const Endpoint& here, Join join,
                     std::function<void(const Endpoint&)> on_found)
    : loop_(loop), plan_(plan), join_(std::move(join)), on_found_(std::move(on_found)) {
  for (const Endpoint& endpoint : plan.endpoints) {
    if (endpoint != here) others_.push_back({endpoint, nullptr, nullptr, 0});
  }
  for (Other& other : others_) look(other);  // they stay where they are from here on
}

Elsewhere::~Elsewhere() {
  for (const Other& other : others_) loop_.cancel(other.timer);
}

// Later: links and connectors are in the middle of a call.
void Elsewhere::then(Other& other, double seconds, std::function<void()> call) {
  loop_.cancel(other.timer);
  other.timer = loop_.after(seconds, std::move(call));
}

void Elsewhere::look(Other& other) {
  other.link.reset();
  const Endpoint& endpoint = other.endpoint;
  const auto again = [this, &other] { look(other); };
  other.connector = net::connect(
      loop_, endpoint.host, endpoint.port, {plan_.run_id, plan_.token}, monotonic_ns() + to_ns(kAgainS),
      {[this, &other](std::unique_ptr<net::Connection> connection) { ask(other, std::move(connection)); },
       [this, &other, again](const std::string&) { then(other, kAgainS, again); }});
}

void Elsewhere::ask(Other& other, std::unique_ptr<net::Connection> connection) {
  const auto again = [this, &other] { look(other); };
  other.link = std::make_unique<Link>(
      loop_, std::move(connection), plan_.heartbeat_s, plan_.heartbeat_timeout_s,
      Link::Hooks{[this, &other, again](const Message& message) {
                    if (std::holds_alternative<Accepted>(message)) {
                      // Copies: this may be gone before the call is done.
                      then(other, 0, [found = on_found_, endpoint = other.endpoint] { found(endpoint); });
                    } else if (std::holds_alternative<Refused>(message)) {
                      then(other, kAgainS, again);
                    }
                  },
                  [this, &other, again](const std::string&) { then(other, kAgainS, again); }});
  other.link->send(join_);
}

}  // namespace trainer::launch
