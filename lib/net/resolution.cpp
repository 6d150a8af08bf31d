#include "net/resolution.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/descriptor.h"

namespace trainer::net {

// The loop reads `result` after the event that says that it is there.
struct Resolution::Shared {
  Descriptor done{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  Resolved result;

  void finish(Resolved resolved) {
    {
      const std::lock_guard lock(mutex);
      result = std::move(resolved);
    }
    ::eventfd_write(done.get(), 1);
  }
};

Resolution::Resolution(EventLoop& loop, const std::string& host, int64_t port,
                       std::function<void(Resolved)> on_resolved)
    : loop_(loop), shared_(std::make_shared<Shared>()), on_resolved_(std::move(on_resolved)) {
  if (!shared_->done.is_open()) {
    timer_ = loop_.at(0, [this, error = std::string(std::strerror(errno))] { end({{}, error}); });
    return;
  }
  loop_.add(shared_->done.get(), EPOLLIN, [this](uint32_t) {
    Resolved resolved;
    {
      const std::lock_guard lock(shared_->mutex);
      resolved = std::move(shared_->result);
    }
    end(std::move(resolved));
  });
  sigset_t all, before;  // the agent's signals are the loop's
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([shared = shared_, host, port] { shared->finish(resolve(host, port)); }).detach();
  } catch (const std::system_error& e) {  // no more threads
    shared_->finish({{}, e.what()});
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Resolution::~Resolution() {
  loop_.cancel(timer_);
  loop_.remove(shared_->done.get());
}

void Resolution::end(Resolved resolved) {
  loop_.remove(shared_->done.get());
  const auto on_resolved = std::move(on_resolved_);
  on_resolved(std::move(resolved));
}

}  // namespace trainer::net
