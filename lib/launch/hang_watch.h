#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "core/event_loop.h"
#include "launch/coordinator/messages.h"
#include "launch/plan/plan.h"

namespace trainer::launch {

class WorkerGroup;

// Watches the progress pages of one group: says which rank stands still, how far all are (for finding
// stragglers), and what a rank's threads are doing. Nothing while no worker tells its progress.
class HangWatch {
 public:
  HangWatch(EventLoop& loop, const WorkerPlan& plan, std::function<void(const Message&)> send);
  ~HangWatch();

  void start(const WorkerGroup& group);
  void stop();
  // On a thread: reading a process's stacks takes seconds. Sends Stacks.
  void send_stacks(const AskStacks& ask);

 private:
  void check();
  void tell_status();
  double timeout_s(double slowest_s) const;

  class StackReader;
  EventLoop& loop_;
  const WorkerPlan& plan_;
  std::function<void(const Message&)> send_;
  const WorkerGroup* group_ = nullptr;
  EventLoop::TimerId check_timer_ = 0, status_timer_ = 0;
  int64_t interval_ = 0;
  bool told_ = false;
  std::unique_ptr<StackReader> reader_;
};

}  // namespace trainer::launch
