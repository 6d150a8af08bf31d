#pragma once

#include <functional>
#include <string>

#include "core/descriptor.h"
#include "core/event_loop.h"
#include "launch/plan/plan.h"

namespace trainer::launch {

// Tells that this node is about to be taken away, other than by a signal: plan.preempt_file appears (as spot instances'
// notices do), or the Slurm job's end (SLURM_JOB_END_TIME) is plan.stop_before_end_s away.
class PreemptTrigger {
 public:
  // Calls on_preempt(what) at most once for each.
  PreemptTrigger(EventLoop& loop, const WorkerPlan& plan,
                 std::function<void(const std::string& what)> on_preempt);
  ~PreemptTrigger();
  PreemptTrigger(const PreemptTrigger&) = delete;
  PreemptTrigger& operator=(const PreemptTrigger&) = delete;

 private:
  void check_file(const char* when);
  void watch_directory();

  EventLoop& loop_;
  std::string file_;
  std::function<void(const std::string&)> on_preempt_;
  Descriptor inotify_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace trainer::launch
