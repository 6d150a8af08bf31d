#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace trainer::data {

// Runs an endless sequence of tasks ahead of their consumer. Tasks are made in order (one at a time), run in
// any order by `num_threads` threads, and their results are handed out in order: what comes out does not
// depend on the number of threads. At most `depth` tasks are claimed ahead of the consumer. A task's
// exception is thrown at its place. No threads: the consumer runs each task itself. One consumer. Destruction
// at any time waits only for running tasks.
template <class T>
class Prefetcher {
 public:
  using Task = std::function<T()>;

  Prefetcher(std::function<Task()> make_task, int64_t num_threads, int64_t depth)
      : make_task_(std::move(make_task)), depth_(static_cast<size_t>(depth > 0 ? depth : 1)) {
    for (int64_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  T next() {
    if (threads_.empty()) return make_task_()();
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !slots_.empty() && slots_.front().done; });
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    lock.unlock();
    room_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(*slot.result);
  }

 private:
  struct Slot {
    std::optional<T> result;
    std::exception_ptr error;
    bool done = false;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return stop_ || slots_.size() < depth_; });
      if (stop_) return;
      Slot& slot = slots_.emplace_back();  // a deque never moves its elements: the reference stays good
      std::optional<T> result;
      std::exception_ptr error;
      try {
        const Task task = make_task_();
        lock.unlock();
        result.emplace(task());
      } catch (...) {
        error = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      slot.result = std::move(result);
      slot.error = std::move(error);
      slot.done = true;
      if (&slot == &slots_.front()) ready_.notify_one();
    }
  }

  const std::function<Task()> make_task_;
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<Slot> slots_;  // in order: results waiting, and tasks running
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last: they use all the above
};

}  // namespace trainer::data
