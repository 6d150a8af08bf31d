#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/descriptor.h"

namespace trainer {

// One thread's epoll loop: descriptors, timers and deferred calls. It sleeps in the kernel until one of them
// is due; nothing polls. Callbacks may add and remove anything, themselves too. Times are monotonic_ns().
class EventLoop {
 public:
  using Callback = std::function<void()>;
  using EventCallback = std::function<void(uint32_t epoll_events)>;
  using TimerId = uint64_t;

  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls of descriptors that became ready come in the order in which they did, so of two deaths the earlier is
  // seen first. `fd` is the caller's: remove it before it is closed. Throws SpecError when the kernel refuses.
  void add(int fd, uint32_t epoll_events, EventCallback callback);
  void modify(int fd, uint32_t epoll_events);
  // Also when closing follows: a descriptor that only was closed stays in the epoll set while a child between
  // vfork and exec has a copy. Unknown descriptors are ignored.
  void remove(int fd);

  TimerId at(int64_t time_ns, Callback callback);
  TimerId after(double seconds, Callback callback);
  void cancel(TimerId id);  // one that was called, or 0, is ignored

  // Calls it in the next round, before anything else.
  void defer(Callback callback);

  // Until stop().
  void run();
  void stop() { stopped_ = true; }

  // One round: waits for the next event, timer or deferred call, at most `timeout_ns` (negative: without end),
  // and makes the calls that are due.
  void run_once(int64_t timeout_ns = -1);

 private:
  Descriptor epoll_;
  std::unordered_map<int, std::shared_ptr<EventCallback>> descriptors_;
  std::multimap<int64_t, std::pair<TimerId, Callback>> timers_;  // by time
  std::vector<Callback> deferred_;
  TimerId last_timer_ = 0;
  bool stopped_ = false;
};

}  // namespace trainer
