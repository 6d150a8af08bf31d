#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/event_loop.h"
#include "launch/coordinator/failure.h"
#include "launch/coordinator/messages.h"
#include "launch/output/output.h"
#include "launch/output/output_pump.h"
#include "launch/plan/node_setup.h"
#include "launch/plan/plan.h"
#include "process/guard.h"
#include "process/process.h"
#include "process/reaper.h"
#include "report/progress.h"

namespace trainer::launch {

// What a group lives in; all outlive it.
struct GroupContext {
  EventLoop& loop;
  OutputPump& outputs;
  process::Reaper& reaper;
  process::Guard& guard;
  const WorkerPlan& plan;
  const NodeSetup& setup;
  const sigset_t& worker_mask;  // signals blocked in workers
  std::string host;             // this node's name
};

// One node's workers of one attempt: spawned together by the constructor, watched until all are gone.
class WorkerGroup {
 public:
  struct Hooks {
    std::function<void(const Failure&)> on_failed;  // one ended, not well
    std::function<void()> on_ended;                 // all are gone; once
  };

  // Throws when a worker can't be started; then none is left.
  WorkerGroup(const GroupContext& context, const Assignment& assignment, Hooks hooks);
  // Kills what is left, and all that the workers left behind.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  const Assignment& assignment() const { return assignment_; }
  int64_t num_running() const { return running_; }

  // SIGTERM, or `signal`; after plan.grace_s SIGKILL. `kill`: ranks that get SIGKILL now.
  void stop(int signal, const std::vector<int64_t>& kill = {});
  void kill();
  // Asks for a save or a stop after a save; workers that know no requests get `signal` (0: nothing), which for a
  // stop begins stop(). Ends in stop() when they take longer than plan.preempt_grace_s.
  void raise(int64_t id, bool stop, int signal);
  void go(int64_t id);

  std::vector<RankStatus> status() const;
  std::string log_of(int64_t rank) const;  // of its standard error
  pid_t pid_of(int64_t rank) const;        // 0: not here, or gone
  int64_t num_preempted() const { return num_preempted_; }
  int64_t last_step() const;
  double slowest_beat_s() const;  // longest time between signs of progress so far

 private:
  enum class Phase { kRunning, kAsked, kStopping, kKilling, kEnded };
  struct Worker {
    process::Process process;
    report::Progress progress;
    WorkerOutput output, error;
    bool running = true;
  };

  void start_worker(int64_t local_rank);
  void on_exit(size_t index);
  void on_grace_over();
  void on_preempt_grace_over();
  void on_unkillable();
  void enter(Phase phase, double seconds, void (WorkerGroup::*then)());
  void end();
  void finish_processes();
  bool is_preparing() const;
  void print(const std::string& text);
  void signal_running(int signal);
  int64_t rank_of(size_t index) const { return assignment_.first_rank + static_cast<int64_t>(index); }

  GroupContext context_;
  Assignment assignment_;
  Hooks hooks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int64_t running_ = 0;
  Phase phase_ = Phase::kRunning;
  EventLoop::TimerId timer_ = 0;  // of the phase
  int64_t num_preempted_ = 0;
  int64_t oom_kills_before_;
};

}  // namespace trainer::launch
