#include "net/connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "net/address.h"
#include "net/pending_peer.h"
#include "net/resolution.h"

namespace trainer::net {
namespace {

constexpr double kFirstPauseS = 0.05;
constexpr double kLastPauseS = 1;
constexpr int64_t kAddressLimitNs = 3'000'000'000;  // for one address, when there is a next try

Failure::Kind kind_of(int error) {
  switch (error) {
    case ECONNREFUSED:
      return Failure::Kind::kRefused;
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Failure::Kind::kNoRoute;
    case ETIMEDOUT:
      return Failure::Kind::kNoAnswer;
    default:
      return Failure::Kind::kOther;
  }
}

// A try: resolve, then for one address after the other connect and shake hands. Between tries, a pause.
class TcpConnector : public Connector {
 public:
  struct Calls {
    std::function<void(std::unique_ptr<Connection>)> on_connected;
    std::function<void(const Failure&)> on_failed;
  };

  TcpConnector(EventLoop& loop, std::string host, int64_t port, Credentials credentials, int64_t deadline_ns,
               Tries tries, Calls calls)
      : loop_(loop),
        host_(std::move(host)),
        port_(port),
        is_numeric_(is_numeric_address(host_)),
        credentials_(std::move(credentials)),
        deadline_ns_(deadline_ns),
        tries_(tries),
        calls_(std::move(calls)) {
    const Handshake checked(Role::kConnecting, credentials_);
    deadline_timer_ = loop_.at(deadline_ns_, [this] { on_deadline(); });
    step_timer_ = loop_.at(0, [this] { begin_try(); });
  }

  ~TcpConnector() override {
    loop_.cancel(deadline_timer_);
    loop_.cancel(step_timer_);
    close_socket();
  }

 private:
  void begin_try() {
    failures_.clear();
    next_ = 0;
    if (is_numeric_) return on_resolved(resolve(host_, port_));
    resolution_.emplace(loop_, host_, port_, [this](Resolved resolved) { on_resolved(std::move(resolved)); });
  }

  void on_resolved(Resolved resolved) {
    resolution_.reset();
    addresses_ = std::move(resolved.addresses);
    if (addresses_.empty()) {
      failures_.push_back(
          {Failure::Kind::kName, fmt::format(": name does not resolve ({})", resolved.error)});
    }
    next_address();
  }

  void next_address() {
    if (next_ == addresses_.size()) return end_try();
    const Address& address = addresses_[next_++];
    socket_ = Descriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_.is_open()) return fail_address({kind_of(errno), ": " + system_reason(errno)});
    set_control_options(socket_.get());
    if (::connect(socket_.get(), address.raw(), address.size) != 0 && errno != EINPROGRESS) {
      return fail_address({kind_of(errno), ": " + system_reason(errno)});
    }
    // Each of the addresses that are left has an equal share of the time that is left.
    const int64_t now_ns = monotonic_ns();
    int64_t limit_ns = (deadline_ns_ - now_ns) / static_cast<int64_t>(addresses_.size() - next_ + 1);
    if (tries_ == Tries::kUntilDeadline) limit_ns = std::min(limit_ns, kAddressLimitNs);
    limit_ns_ = now_ns + limit_ns;
    step_timer_ = loop_.at(limit_ns_, [this, limit_ns] { fail_address(no_answer(limit_ns)); });
    loop_.add(socket_.get(), EPOLLOUT, [this](uint32_t) { on_connected(); });
  }

  void on_connected() {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail_address({kind_of(error), ": " + system_reason(error)});
    // Where nobody listens on a port of the ephemeral range of this host, a socket may meet itself.
    if (local_address_of(socket_.get()).text() == addresses_[next_ - 1].text()) {
      return fail_address({Failure::Kind::kRefused, ": " + system_reason(ECONNREFUSED)});
    }
    loop_.remove(socket_.get());
    loop_.cancel(std::exchange(step_timer_, 0));
    pending_ =
        std::make_unique<PendingPeer>(loop_, std::move(socket_), addresses_[next_ - 1], Role::kConnecting,
                                      credentials_, limit_ns_, [this](PendingPeer::Outcome outcome) {
                                        const auto ended = std::move(pending_);
                                        if (outcome.connection == nullptr) {
                                          return fail_address(std::move(outcome.failure));
                                        }
                                        finish();
                                        const Calls calls = std::move(calls_);
                                        calls.on_connected(std::move(outcome.connection));
                                      });
  }

  void fail_address(Failure failure) {
    close_socket();
    if (addresses_.size() > 1) {
      failure.text = fmt::format("{} at {}", failure.text, addresses_[next_ - 1].host());
    }
    failures_.push_back(std::move(failure));
    next_address();
  }

  void end_try() {
    const auto final = std::ranges::find_if(failures_, &Failure::is_final);
    last_ = final != failures_.end() ? *final : failures_.front();
    if (final == failures_.end()) {
      for (size_t i = 1; i < failures_.size(); ++i)
        last_->text += fmt::format(";{}", failures_[i].text.substr(1));
    }
    if (last_->is_final() || tries_ == Tries::kOne) return fail_for_good(*last_);
    step_timer_ = loop_.after(pause_s_, [this] { begin_try(); });
    pause_s_ = std::min(kLastPauseS, pause_s_ * 2);
  }

  void on_deadline() {
    if (!last_.has_value() && !failures_.empty()) last_ = failures_.front();
    if (!last_.has_value() && resolution_.has_value()) {
      last_ = Failure{Failure::Kind::kName, ": name is still being looked up (DNS does not answer)"};
    }
    fail_for_good(last_.has_value() ? *last_ : no_answer(monotonic_ns() - begin_ns_));
  }

  void fail_for_good(Failure failure) {
    finish();
    failure.text = (failure.kind == Failure::Kind::kName ? host_ : host_port(host_, port_)) + failure.text;
    const Calls calls = std::move(calls_);
    calls.on_failed(failure);
  }

  Failure no_answer(int64_t waited_ns) const {
    return {Failure::Kind::kNoAnswer,
            fmt::format(": no {} in {:.1f} s", pending_ != nullptr ? "handshake" : "answer",
                        static_cast<double>(waited_ns) * 1e-9)};
  }

  void close_socket() {
    if (!socket_.is_open()) return;
    loop_.remove(socket_.get());
    loop_.cancel(std::exchange(step_timer_, 0));
    socket_.reset();
  }

  void finish() {
    loop_.cancel(std::exchange(deadline_timer_, 0));
    loop_.cancel(std::exchange(step_timer_, 0));
    resolution_.reset();
    pending_.reset();
    close_socket();
  }

  EventLoop& loop_;
  const std::string host_;
  const int64_t port_;
  const bool is_numeric_;
  const Credentials credentials_;
  const int64_t begin_ns_ = monotonic_ns();
  const int64_t deadline_ns_;
  const Tries tries_;
  Calls calls_;
  EventLoop::TimerId deadline_timer_ = 0;
  EventLoop::TimerId step_timer_ = 0;  // the pause's end, or an address's
  double pause_s_ = kFirstPauseS;
  std::optional<Failure> last_;  // of the last whole try
  // Of the present try.
  std::optional<Resolution> resolution_;
  std::vector<Address> addresses_;
  size_t next_ = 0;  // of addresses_
  int64_t limit_ns_ = 0;
  Descriptor socket_;  // being connected
  std::unique_ptr<PendingPeer> pending_;
  std::vector<Failure> failures_;
};

}  // namespace

std::unique_ptr<Connector> connect(EventLoop& loop, std::string host, int64_t port, Credentials credentials,
                                   int64_t deadline_ns, Tries tries,
                                   std::function<void(std::unique_ptr<Connection>)> on_connected,
                                   std::function<void(const Failure&)> on_failed) {
  return std::make_unique<TcpConnector>(loop, std::move(host), port, std::move(credentials), deadline_ns,
                                        tries,
                                        TcpConnector::Calls{std::move(on_connected), std::move(on_failed)});
}

std::unique_ptr<Connector> connect(EventLoop& loop, std::string host, int64_t port, Credentials credentials,
                                   int64_t deadline_ns, Connector::Handlers handlers) {
  return connect(
      loop, std::move(host), port, std::move(credentials), deadline_ns, Tries::kUntilDeadline,
      std::move(handlers.on_connected),
      [on_failed = std::move(handlers.on_failed)](const Failure& failure) { on_failed(failure.text); });
}

}  // namespace trainer::net
