#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <cstdint>
#include <optional>

#include "dist/communicator.h"
#include "report/progress.h"

namespace trainer::train {

// How many ranks were asked to; sums over ranks go along with the sums of a log step.
struct Votes {
  double save = 0;
  double stop = 0;
};

// Requests from outside to save, or to save and stop, which all ranks must meet at the same step.
//
// From this program's agent, by the progress page (its two phases are described there): any rank that sees "go" after
// its step s names the step to act after in the job's store; every rank that knows of the request looks there after each
// step. No rank's host is more than kAhead steps ahead of the slowest rank's device, since a step's gradients need all
// ranks: so no rank can have passed step s + kAhead + 1, and all have learnt of it when they end that step.
//
// From another launcher (torchrun, srun, mpirun), by signals, to any of the ranks: SIGTERM is stop (a second one ends the
// process as usual), SIGUSR1 is save. There the ranks agree at the next log step, by votes().
class Requests {
 public:
  // While it lives, the signals are its own: ignored SIGUSR1 under an agent.
  Requests(report::ProgressPage& page, dist::Communicator& communicator, c10::Device device);
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // After every step, on every rank: what to do now, the same on all. Waits for the device where the host is ahead.
  report::Request after_step(int64_t step);
  // The request was met.
  void done(int64_t step);

  // This rank's votes, and those of all ranks, at a log step.
  Votes votes() const;
  void count(const Votes& all);

 private:
  static constexpr int64_t kAhead = 2;      // steps, of the host on an accelerator; on a CPU 0
  static constexpr uint32_t kMostOpen = 8;  // requests that are raised and not met

  void limit_run_ahead(int64_t step);
  report::Request from_agent(int64_t step);

  report::ProgressPage& page_;
  dist::Communicator& communicator_;
  c10::Device device_;
  std::array<std::optional<c10::Event>, kAhead> step_ends_;
  uint32_t meeting_id_ = 0;                         // the agent's request that after_step() told to meet
  report::Request voted_ = report::Request::kNone;  // by the last log step
};

}  // namespace trainer::train
