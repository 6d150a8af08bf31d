#include "launch/coordinator/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace trainer::launch {

Link::Link(EventLoop& loop, std::unique_ptr<net::Connection> connection, double heartbeat_s, double timeout_s,
           Hooks hooks)
    : loop_(loop),
      connection_(std::move(connection)),
      heartbeat_s_(heartbeat_s),
      timeout_s_(timeout_s),
      hooks_(std::move(hooks)),
      last_heard_ns_(monotonic_ns()) {
  connection_->start({[this](std::string_view frame) { on_frame(frame); },
                      [this](const std::string& reason) { lose(reason); }});
  beat();
}

Link::~Link() {
  loop_.cancel(timer_);
}

void Link::send(const Message& message) {
  connection_->send(encode(message));
}

void Link::lose(const std::string& reason) {
  loop_.cancel(timer_);
  const auto on_lost = std::exchange(hooks_.on_lost, nullptr);
  if (on_lost) on_lost(reason);
}

// "?<our time>" is answered by "!<that time> <their time>"; messages begin with "{".
void Link::beat() {
  const double silent_s = 1e-9 * static_cast<double>(monotonic_ns() - last_heard_ns_);
  if (silent_s >= timeout_s_) return lose(fmt::format("nothing heard from it for {:.1f} s", silent_s));
  connection_->send(fmt::format("?{}", monotonic_ns()));
  timer_ = loop_.after(std::min(heartbeat_s_, timeout_s_ - silent_s), [this] { beat(); });
}

void Link::on_frame(std::string_view frame) {
  const int64_t now_ns = monotonic_ns();
  last_heard_ns_ = now_ns;
  if (frame.starts_with('?')) {
    connection_->send(fmt::format("!{} {}", frame.substr(1), now_ns));
    return;
  }
  if (frame.starts_with('!')) {
    long long sent_ns = 0, peer_ns = 0;
    if (std::sscanf(std::string(frame.substr(1)).c_str(), "%lld %lld", &sent_ns, &peer_ns) != 2) return;
    const int64_t round_trip_ns = now_ns - sent_ns;
    if (round_trip_ns < 0 || round_trip_ns >= best_round_trip_ns_) return;
    best_round_trip_ns_ = round_trip_ns;
    clock_offset_ns_ = peer_ns - (sent_ns + round_trip_ns / 2);
    return;
  }
  try {
    Message message = decode(frame);
    if (auto* exited = std::get_if<Exited>(&message)) exited->failure.time_ns -= clock_offset_ns_;
    hooks_.on_message(message);
  } catch (const DistributedError& error) {
    lose(error.what());
  }
}

}  // namespace trainer::launch
