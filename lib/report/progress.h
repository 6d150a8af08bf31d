#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/descriptor.h"

// One page of shared memory per worker: the worker says how far it is, the agent asks it to stop or to save.
// The agent makes it (a memfd) and hands it to the worker as the descriptor that TRAINER_PROGRESS_FD names. A
// program that knows nothing of it leaves `attached` at 0.

namespace trainer::report {

enum class Phase : uint32_t {
  kStarting,
  kJoining,
  kLoading,
  kDataWait,
  kForward,
  kBackward,
  kSync,
  kOptimizer,
  kEvaluation,
  kCheckpoint,
  kLog,
  kFinishing,
};
const char* to_string(Phase phase);  // "waiting for data", "waiting for the other ranks", ...

enum class Request : uint32_t { kNone, kSave, kStop };

struct ProgressPage {
  // The worker's.
  std::atomic<uint32_t> attached{0};
  std::atomic<Phase> phase{Phase::kStarting};
  std::atomic<int64_t> step{0};     // optimizer steps done
  std::atomic<int64_t> beat_ns{0};  // monotonic time of the last sign of progress: a step, a phase, a batch
  std::atomic<int64_t> slowest_ns{0};  // longest time between two beats since the first step's end
  std::atomic<int64_t> busy_ns{0};  // host time of all steps, without waiting for other ranks: who straggles
  std::atomic<int64_t> saved_step{-1};  // last step that a Request::kSave or kStop has saved
  std::atomic<uint32_t> handled_id{0};  // the last request that was acted on
  // The agent's. Two phases, so that all ranks act at the same step: request_id (with `request`) tells every rank
  // to look at the job's store after each step from now on; go_id, once all nodes have raised request_id, lets
  // any rank name the step there. Numbers grow. A newer request may be raised while one is
  // open: then either both are met, in either kind, or the newer alone.
  alignas(64) std::atomic<Request> request{Request::kNone};  // written before request_id
  std::atomic<uint32_t> request_id{0};
  std::atomic<uint32_t> go_id{0};

  // The worker's calls, nanoseconds each: plain stores to a line that nobody else writes.
  void beat(int64_t now_ns = monotonic_ns()) {
    const int64_t gap_ns = now_ns - beat_ns.load(std::memory_order_relaxed);
    if (step.load(std::memory_order_relaxed) > 0 && gap_ns > slowest_ns.load(std::memory_order_relaxed))
      slowest_ns.store(gap_ns, std::memory_order_relaxed);
    beat_ns.store(now_ns, std::memory_order_relaxed);
  }
  void begin(Phase next, int64_t now_ns = monotonic_ns()) {
    beat(now_ns);
    phase.store(next, std::memory_order_relaxed);
  }
  void end_step(int64_t steps_done, int64_t busy_so_far_ns) {
    busy_ns.store(busy_so_far_ns, std::memory_order_relaxed);
    step.store(steps_done, std::memory_order_release);
  }
};
static_assert(std::atomic<int64_t>::is_always_lock_free && sizeof(ProgressPage) <= 4096);

// A mapping of one page.
class Progress {
 public:
  // The agent's side: a new page; `fd` is inherited by the worker.
  static Progress create();
  // The worker's side: the page that TRAINER_PROGRESS_FD names (the variable is then gone: programs that this one starts
  // are not meant); a private one when there is none, so that callers need not ask.
  static Progress from_environment();

  ProgressPage& page() const { return *page_; }
  int fd() const { return fd_.get(); }

 private:
  struct Unmap {
    void operator()(ProgressPage* page) const;
  };
  std::unique_ptr<ProgressPage, Unmap> page_;
  Descriptor fd_;
};

}  // namespace trainer::report
