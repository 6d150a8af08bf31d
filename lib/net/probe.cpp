#include "net/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "net/address.h"
#include "net/connector.h"

namespace trainer::net {
namespace {

constexpr size_t kProbesAtOnce = 64;

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  return is_numeric_address(host) && resolve(host, 0).addresses.front().is_loopback();
}

std::string hint_of(Failure::Kind kind, const ProbePeer& peer) {
  if (is_loopback(peer.host)) {
    return fmt::format("{} tells others a loopback address; set launch.local_addr or launch.interface there",
                       peer.name);
  }
  switch (kind) {
    case Failure::Kind::kName:
      return "all nodes must know this name (DNS, /etc/hosts); or set launch.local_addr to the node's "
             "address";
    case Failure::Kind::kRefused:
      return "its agent has ended, a firewall rejects the port, or another host has this address";
    case Failure::Kind::kNoRoute:
      return "the nodes are on different networks; launch.interface or launch.local_addr says which one to "
             "use";
    case Failure::Kind::kNoAnswer:
      return "a firewall drops the packets, or the host is down; nodes must reach each other on all TCP "
             "ports from "
             "1024 on (NCCL and Gloo choose them freely)";
    case Failure::Kind::kClosed:
      return "a proxy or a firewall stands between the nodes, or the agent there has just ended";
    case Failure::Kind::kNotOurs:
      return "another program answers: does another host have this address, or are versions or jobs mixed?";
    case Failure::Kind::kOther:
      break;
  }
  return "see the system's reason";
}

class TcpProbe : public Probe {
 public:
  TcpProbe(EventLoop& loop, std::vector<ProbePeer> peers, Credentials credentials, int64_t deadline_ns,
           OnDone on_done)
      : loop_(loop),
        credentials_(std::move(credentials)),
        deadline_ns_(deadline_ns),
        on_done_(std::move(on_done)) {
    for (ProbePeer& peer : peers) results_.push_back({.peer = std::move(peer), .reason = {}, .hint = {}});
    running_.resize(results_.size());
    timer_ = loop_.at(0, [this] { go_on(); });
  }
  ~TcpProbe() override { loop_.cancel(timer_); }

 private:
  void go_on() {
    while (num_running_ < kProbesAtOnce && next_ < results_.size()) begin(next_++);
    if (num_running_ > 0) return;
    const OnDone on_done = std::move(on_done_);
    on_done(std::move(results_));
  }

  void begin(size_t i) {
    const int64_t now_ns = monotonic_ns();
    const size_t rounds = (results_.size() - i + kProbesAtOnce - 1) / kProbesAtOnce;
    const int64_t limit_ns =
        now_ns + std::max<int64_t>(0, deadline_ns_ - now_ns) / static_cast<int64_t>(rounds);
    const ProbePeer& peer = results_[i].peer;
    ++num_running_;
    running_[i] = connect(
        loop_, peer.host, peer.port, credentials_, limit_ns, Tries::kOne,
        [this, i, now_ns](std::unique_ptr<Connection>) {
          results_[i].is_reached = true;
          results_[i].ms = static_cast<double>(monotonic_ns() - now_ns) * 1e-6;
          end(i);
        },
        [this, i](const Failure& failure) {
          results_[i].reason = failure.text;
          results_[i].hint = hint_of(failure.kind, results_[i].peer);
          end(i);
        });
  }

  void end(size_t i) {
    running_[i].reset();
    --num_running_;
    go_on();
  }

  EventLoop& loop_;
  const Credentials credentials_;
  const int64_t deadline_ns_;
  OnDone on_done_;
  std::vector<ProbeResult> results_;
  std::vector<std::unique_ptr<Connector>> running_;  // by peer
  size_t num_running_ = 0;
  size_t next_ = 0;  // to begin with
  EventLoop::TimerId timer_ = 0;
};

}  // namespace

std::unique_ptr<Listener> answer_probes(EventLoop& loop, std::vector<Descriptor> sockets,
                                        Credentials credentials) {
  return listen(loop, std::move(sockets), std::move(credentials), [](std::unique_ptr<Connection>) {});
}

std::unique_ptr<Probe> probe(EventLoop& loop, std::vector<ProbePeer> peers, Credentials credentials,
                             int64_t deadline_ns, Probe::OnDone on_done) {
  return std::make_unique<TcpProbe>(loop, std::move(peers), std::move(credentials), deadline_ns,
                                    std::move(on_done));
}

}  // namespace trainer::net
