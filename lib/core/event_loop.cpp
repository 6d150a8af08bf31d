#include "core/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"

namespace trainer {

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.is_open()) fail<SpecError>("launch: cannot make an epoll descriptor: {}", std::strerror(errno));
}

void EventLoop::add(int fd, uint32_t epoll_events, EventCallback callback) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    fail<SpecError>("launch: cannot watch descriptor {}: {}", fd, std::strerror(errno));
  }
  descriptors_[fd] = std::make_shared<EventCallback>(std::move(callback));
}

void EventLoop::modify(int fd, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  if (descriptors_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::at(int64_t time_ns, Callback callback) {
  timers_.emplace(time_ns, std::pair(++last_timer_, std::move(callback)));
  return last_timer_;
}

EventLoop::TimerId EventLoop::after(double seconds, Callback callback) {
  return at(monotonic_ns() + to_ns(seconds), std::move(callback));
}

void EventLoop::cancel(TimerId id) {
  std::erase_if(timers_, [&](const auto& timer) { return timer.second.first == id; });
}

void EventLoop::defer(Callback callback) {
  deferred_.push_back(std::move(callback));
}

void EventLoop::run() {
  stopped_ = false;
  while (!stopped_) run_once();
}

void EventLoop::run_once(int64_t timeout_ns) {
  const std::vector<Callback> deferred = std::exchange(deferred_, {});
  for (const Callback& callback : deferred) callback();
  if (stopped_) return;

  int64_t wait_ns = deferred.empty() ? timeout_ns : 0;  // the caller may have waited for just these calls
  if (!deferred_.empty()) wait_ns = 0;
  if (!timers_.empty()) {
    const int64_t until_timer_ns = std::max<int64_t>(0, timers_.begin()->first - monotonic_ns());
    wait_ns = wait_ns < 0 ? until_timer_ns : std::min(wait_ns, until_timer_ns);
  }
  // Rounded up: a timer must be due when the wait ends.
  constexpr int64_t kDayMs = 24 * 3600 * 1000;
  const int wait_ms = wait_ns < 0 ? -1 : static_cast<int>(std::min(kDayMs, (wait_ns + 999'999) / 1'000'000));
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
  for (int i = 0; i < n && !stopped_; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto found = descriptors_.find(event.data.fd);  // gone when an earlier call removed it
    if (found == descriptors_.end()) continue;
    const std::shared_ptr<EventCallback> callback = found->second;
    (*callback)(event.events);
  }
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= monotonic_ns()) {
    const Callback callback = std::move(timers_.begin()->second.second);
    timers_.erase(timers_.begin());
    callback();
  }
}

}  // namespace trainer
