#include "net/pending_peer.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.h"

namespace trainer::net {

std::string system_reason(int error) {
  switch (error) {
    case ETIMEDOUT:
      return "no answer";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "no route to host";
    default: {
      std::string text = std::strerror(error);
      text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
      return text;
    }
  }
}

void set_control_options(int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);  // ms that sent data may stay unacknowledged
  set(SOL_SOCKET, SO_KEEPALIVE, 1);            // the same for a connection on which nothing is sent
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

PendingPeer::PendingPeer(EventLoop& loop, Descriptor socket, const Address& peer, Role role,
                         const Credentials& credentials, int64_t deadline_ns,
                         std::function<void(Outcome)> on_over)
    : loop_(loop),
      socket_(std::move(socket)),
      peer_(peer.text()),
      role_(role),
      handshake_(role, credentials),
      on_over_(std::move(on_over)),
      begin_ns_(monotonic_ns()) {
  set_control_options(socket_.get());
  loop_.add(socket_.get(), EPOLLIN, [this](uint32_t) { on_readable(); });
  timer_ = loop_.at(deadline_ns, [this] {
    if (handshake_.is_over()) return end(nullptr, {Failure::Kind::kNotOurs, handshake_.reason()});
    const double waited_s = static_cast<double>(monotonic_ns() - begin_ns_) * 1e-9;
    end(nullptr, {Failure::Kind::kNoAnswer, fmt::format(": no handshake in {:.1f} s", waited_s)});
  });
  send_output();
}

PendingPeer::~PendingPeer() {
  loop_.cancel(timer_);
  loop_.remove(socket_.get());
}

void PendingPeer::send_output() {
  // All that a handshake sends fits into the empty buffer of a new socket. An error is seen by the next recv.
  const std::string output = handshake_.take_output();
  if (!output.empty()) [[maybe_unused]]
    const ssize_t n = ::send(socket_.get(), output.data(), output.size(), MSG_NOSIGNAL);
}

void PendingPeer::on_readable() {
  std::array<char, kMaxHandshakeBytes> buffer;
  const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size() - num_received_, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const int error = n < 0 ? errno : 0;
  if (handshake_.is_over()) {  // refused, and told so: what comes is thrown away until it has closed
    if (n > 0 && (num_received_ += static_cast<size_t>(n)) < kMaxHandshakeBytes) return;
    return end(nullptr, {Failure::Kind::kNotOurs, handshake_.reason()});
  }
  if (n <= 0) {
    return end(nullptr, {Failure::Kind::kClosed, error == 0 ? ": closed the connection during the handshake"
                                                            : ": " + system_reason(error)});
  }
  num_received_ += static_cast<size_t>(n);
  handshake_.receive({buffer.data(), static_cast<size_t>(n)});
  send_output();
  if (!handshake_.is_over()) return;  // the longest handshake is well below kMaxHandshakeBytes
  if (handshake_.refusal() == Refusal::kNone) {
    loop_.remove(socket_.get());
    return end(make_connection(loop_, std::move(socket_), peer_, handshake_.take_rest()), {});
  }
  const bool told = role_ == Role::kListening && handshake_.refusal() != Refusal::kNotTrainer;
  // To close with input unread would reset the connection, and the refusal could be lost on the way.
  if (told && num_received_ < kMaxHandshakeBytes) {
    ::shutdown(socket_.get(), SHUT_WR);
    return;
  }
  end(nullptr, {Failure::Kind::kNotOurs, handshake_.reason()});
}

void PendingPeer::end(std::unique_ptr<Connection> connection, Failure failure) {
  loop_.cancel(std::exchange(timer_, 0));
  if (socket_.is_open()) loop_.remove(socket_.get());
  const auto on_over = std::move(on_over_);
  on_over({std::move(connection), std::move(failure), peer_, num_received_ == 0});
}

}  // namespace trainer::net
