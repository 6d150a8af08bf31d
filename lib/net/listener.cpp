#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <list>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "net/connection.h"
#include "net/pending_peer.h"
#include "net/socket.h"

namespace trainer::net {
namespace {

constexpr size_t kMaxStrangers = 256;
constexpr double kHandshakeTimeoutS = 3;
constexpr double kNoDescriptorsPauseS = 0.1;
constexpr int kAcceptsAtOnce = 64;

// One line a second, whatever knocks at the door.
class RefusalLog {
 public:
  void add(const std::string& peer, const std::string& reason) {
    const int64_t now_ns = monotonic_ns();
    if (now_ns < next_ns_) {
      ++num_left_out_;
      return;
    }
    const std::string more = num_left_out_ == 0 ? "" : fmt::format("; {} more before it", num_left_out_);
    log_warning("refused a connection from {}{}{}", peer, reason, more);
    num_left_out_ = 0;
    next_ns_ = now_ns + 1'000'000'000;
  }

 private:
  int64_t next_ns_ = 0;
  int64_t num_left_out_ = 0;
};

class TcpListener : public Listener {
 public:
  TcpListener(EventLoop& loop, std::vector<Descriptor> sockets, Credentials credentials, OnPeer on_peer)
      : loop_(loop),
        sockets_(std::move(sockets)),
        credentials_(std::move(credentials)),
        on_peer_(std::make_shared<OnPeer>(std::move(on_peer))) {
    const Handshake checked(Role::kListening, credentials_);
    for (const Descriptor& socket : sockets_) {
      ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    }
    set_accepting(true);
  }

  ~TcpListener() override {
    loop_.cancel(pause_timer_);
    set_accepting(false);
  }

  int64_t port() const override { return port_of(sockets_.front()); }

 private:
  void set_accepting(bool on) {
    for (const Descriptor& socket : sockets_) {
      loop_.remove(socket.get());
      if (on) loop_.add(socket.get(), EPOLLIN, [this, fd = socket.get()](uint32_t) { accept_from(fd); });
    }
  }

  void accept_from(int fd) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {  // then others have their turn
      Address peer;
      peer.size = sizeof peer.storage;
      Descriptor socket(::accept4(fd, peer.raw(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.is_open()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) make_room();
        if (errno == ECONNABORTED || errno == EINTR) continue;
        return;
      }
      if (strangers_.size() == kMaxStrangers) strangers_.pop_front();
      const auto place = strangers_.emplace(strangers_.end());
      const int64_t deadline_ns = monotonic_ns() + to_ns(kHandshakeTimeoutS);
      *place = std::make_unique<PendingPeer>(
          loop_, std::move(socket), peer, Role::kListening, credentials_, deadline_ns,
          [this, place](PendingPeer::Outcome o) { on_over(place, std::move(o)); });
    }
  }

  // No descriptors are left: strangers have to go first, and a pause keeps the loop from spinning.
  void make_room() {
    strangers_.clear();
    set_accepting(false);
    pause_timer_ = loop_.after(kNoDescriptorsPauseS, [this] { set_accepting(true); });
  }

  void on_over(std::list<std::unique_ptr<PendingPeer>>::iterator place, PendingPeer::Outcome outcome) {
    // One that connects and closes is a health check or the like.
    if (outcome.connection == nullptr && !outcome.was_silent)
      refusals_.add(outcome.peer, outcome.failure.text);
    strangers_.erase(place);
    const std::shared_ptr<OnPeer> on_peer = on_peer_;  // the call may destroy this
    if (outcome.connection != nullptr) (*on_peer)(std::move(outcome.connection));
  }

  EventLoop& loop_;
  std::vector<Descriptor> sockets_;
  Credentials credentials_;
  std::shared_ptr<OnPeer> on_peer_;
  std::list<std::unique_ptr<PendingPeer>> strangers_;  // the oldest first
  EventLoop::TimerId pause_timer_ = 0;
  RefusalLog refusals_;
};

}  // namespace

std::unique_ptr<Listener> listen(EventLoop& loop, std::vector<Descriptor> sockets, Credentials credentials,
                                 Listener::OnPeer on_peer) {
  return std::make_unique<TcpListener>(loop, std::move(sockets), std::move(credentials), std::move(on_peer));
}

std::unique_ptr<Listener> listen(EventLoop& loop, Descriptor socket, Credentials credentials,
                                 Listener::OnPeer on_peer) {
  std::vector<Descriptor> sockets;
  sockets.push_back(std::move(socket));
  return listen(loop, std::move(sockets), std::move(credentials), std::move(on_peer));
}

}  // namespace trainer::net
