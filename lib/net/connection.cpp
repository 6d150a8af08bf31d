#include "net/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/error.h"
#include "net/address.h"
#include "net/frame.h"
#include "net/pending_peer.h"

namespace trainer::net {
namespace {

constexpr size_t kMaxUnsentBytes = 64 << 20;
constexpr size_t kReadBytes = 64 << 10;

class TcpConnection : public Connection {
 public:
  TcpConnection(EventLoop& loop, Descriptor socket, std::string peer, std::string received)
      : loop_(loop), socket_(std::move(socket)), peer_(std::move(peer)), input_(std::move(received)) {}

  ~TcpConnection() override {
    loop_.cancel(timer_);
    if (!socket_.is_open()) return;
    loop_.remove(socket_.get());
    // Closing with input unread would reset the connection, and the peer could lose what it has not read yet.
    ::shutdown(socket_.get(), SHUT_WR);
    std::array<char, kReadBytes> ignored;
    for (int i = 0; i < 16 && ::recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0; ++i) {
    }
  }

  void start(Handlers handlers) override {
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
    update_events();
    if (!input_.empty() || !failure_.empty()) soon();
  }

  void send(std::string_view message) override {
    if (message.size() > kMaxMessageBytes) {
      fail<DistributedError>("control plane: a message of {} bytes to {}; expected at most {}",
                             message.size(), peer_address(), kMaxMessageBytes);
    }
    if (!failure_.empty()) return;
    const auto length = encode_u32(static_cast<uint32_t>(message.size()));
    size_t num_sent = 0;
    if (all_sent()) num_sent = write(std::string_view(length.data(), length.size()), message);
    if (!failure_.empty() || num_sent == length.size() + message.size()) return;
    if (num_sent < length.size()) output_.append(length.data() + num_sent, length.size() - num_sent);
    output_ += message.substr(num_sent > length.size() ? num_sent - length.size() : 0);
    if (output_.size() - num_output_sent_ > kMaxUnsentBytes) {
      return give_up(fmt::format("left {} MiB unread", kMaxUnsentBytes >> 20));
    }
    update_events();
  }

  bool all_sent() const override { return output_.empty(); }
  std::string peer_address() const override { return peer_; }
  std::string local_address() const override { return local_address_of(socket_.get()).host(); }

 private:
  void on_event(uint32_t events) {
    if ((events & EPOLLOUT) != 0) flush();
    if (handlers_ != nullptr && (events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) return read();
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 && failure_.empty())
      give_up("closed by the peer");  // not started yet
  }

  // What the socket took; 0 with failure_ set when it is broken.
  size_t write(std::string_view first, std::string_view second = {}) {
    const std::array<iovec, 2> parts{iovec{const_cast<char*>(first.data()), first.size()},
                                     iovec{const_cast<char*>(second.data()), second.size()}};
    msghdr header{};
    header.msg_iov = const_cast<iovec*>(parts.data());
    header.msg_iovlen = parts.size();
    const ssize_t n = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN && errno != EINTR) give_up(system_reason(errno));
    return 0;
  }

  void flush() {
    num_output_sent_ += write(std::string_view(output_).substr(num_output_sent_));
    if (num_output_sent_ == output_.size()) {
      output_ = {};
      num_output_sent_ = 0;
    } else if (num_output_sent_ > output_.size() / 2) {  // so that each byte is moved once at most
      output_.erase(0, std::exchange(num_output_sent_, 0));
    }
    update_events();
  }

  // Nothing is sent any more. What the peer had sent before is still delivered, then the loss; not from within send().
  void give_up(std::string reason) {
    failure_ = std::move(reason);
    output_ = {};
    num_output_sent_ = 0;
    update_events();
    if (handlers_ != nullptr) soon();
  }

  void soon() {
    loop_.cancel(timer_);
    timer_ = loop_.at(0, [this] {
      if (failure_.empty()) {
        deliver();
      } else {
        read();
      }
    });
  }

  void read() {
    std::array<char, kReadBytes> buffer;
    ssize_t n = 0;
    do {
      n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      const int error = errno;
      if (n > 0) {
        input_.append(buffer.data(), static_cast<size_t>(n));
        if (!deliver()) return;
      } else if (n == 0 || (error != EAGAIN && error != EINTR)) {
        // What a send met is the better reason: it took the error from the socket.
        return lose(!failure_.empty() ? failure_ : n == 0 ? "closed by the peer" : system_reason(error));
      }
    } while (n > 0 && !failure_.empty());  // a healthy one lets others have their turn
    if (!failure_.empty()) lose(failure_);
  }

  // The whole messages of input_. False: this is gone, or was lost.
  bool deliver() {
    const std::weak_ptr<bool> alive = alive_;
    size_t begin = 0;
    while (input_.size() - begin >= kLengthBytes) {
      const size_t length = decode_u32(std::string_view(input_).substr(begin, kLengthBytes));
      if (length > kMaxMessageBytes) {
        lose(fmt::format("it sent a message of {} bytes; expected at most {}", length, kMaxMessageBytes));
        return false;
      }
      if (input_.size() - begin - kLengthBytes < length) {
        input_.erase(0, std::exchange(begin, 0));
        input_.reserve(kLengthBytes + length);
        break;
      }
      const std::shared_ptr<Handlers> handlers = handlers_;  // the call may destroy this, or start it anew
      if (handlers->on_message) {
        handlers->on_message(std::string_view(input_).substr(begin + kLengthBytes, length));
      }
      if (alive.expired()) return false;
      begin += kLengthBytes + length;
    }
    input_.erase(0, begin);
    return true;
  }

  // The last thing that a member does.
  void lose(const std::string& reason) {
    const std::string copy = reason;
    failure_ = reason;
    output_ = {};
    loop_.cancel(std::exchange(timer_, 0));
    loop_.remove(socket_.get());
    is_lost_ = true;
    const std::shared_ptr<Handlers> handlers = handlers_;
    if (handlers->on_lost) handlers->on_lost(copy);
  }

  void update_events() {
    const uint32_t wanted = is_lost_ ? 0
                                     : (handlers_ != nullptr ? static_cast<uint32_t>(EPOLLIN) : 0) |
                                           (output_.empty() ? 0 : static_cast<uint32_t>(EPOLLOUT));
    if (wanted == events_) return;
    if (wanted == 0) {
      loop_.remove(socket_.get());
    } else if (events_ == 0) {
      loop_.add(socket_.get(), wanted, [this](uint32_t events) { on_event(events); });
    } else {
      loop_.modify(socket_.get(), wanted);
    }
    events_ = wanted;
  }

  EventLoop& loop_;
  Descriptor socket_;
  const std::string peer_;
  std::shared_ptr<Handlers> handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // expires with this
  std::string input_;
  std::string output_;  // from num_output_sent_ on it is still to be sent
  size_t num_output_sent_ = 0;
  uint32_t events_ = 0;  // that the loop watches for; 0: not in the loop
  EventLoop::TimerId timer_ = 0;
  std::string failure_;  // not empty: nothing can be sent any more
  bool is_lost_ = false;
};

}  // namespace

std::unique_ptr<Connection> make_connection(EventLoop& loop, Descriptor socket, std::string peer,
                                            std::string received) {
  return std::make_unique<TcpConnection>(loop, std::move(socket), std::move(peer), std::move(received));
}

}  // namespace trainer::net
