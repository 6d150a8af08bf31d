#pragma once

#include <cstdint>
#include <string>

#include "launch/coordinator/failure.h"
#include "launch/plan/plan.h"

namespace trainer::launch {

// Whether a failed attempt is followed by another: one budget for the whole job.
class RestartBudget {
 public:
  explicit RestartBudget(const WorkerPlan& plan) : plan_(plan) {}

  // Uses one restart, if there is one for this failure. `last_step`: the furthest that the attempt came, -1: its
  // workers do not tell.
  bool take(const Failure& root, int64_t last_step);
  // Why take() refused; empty when nobody asked for restarts.
  const std::string& refusal() const { return refusal_; }
  int64_t used() const { return used_; }
  // As many were used under an earlier coordinator.
  void resume(int64_t used) { used_ = used; }

 private:
  const WorkerPlan& plan_;
  int64_t used_ = 0;
  int64_t best_step_ = -1;  // of all attempts
  int64_t without_progress_ = 0;
  std::string refusal_;
};

}  // namespace trainer::launch
