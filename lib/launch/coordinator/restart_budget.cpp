#include "launch/coordinator/restart_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trainer::launch {
namespace {

// A job file or data that are wrong stay wrong.
bool is_permanent(const Failure& failure) {
  return failure.signal == 0 && (failure.code == static_cast<int>(ExitCode::kUsage) ||
                                 failure.code == static_cast<int>(ExitCode::kData));
}

}  // namespace

bool RestartBudget::take(const Failure& root, int64_t last_step) {
  refusal_.clear();
  if (plan_.max_restarts == 0) return false;
  if (plan_.is_trainer && is_permanent(root)) {
    refusal_ = fmt::format("no restart: another try does not mend what exit code {} stands for", root.code);
    return false;
  }
  if (used_ >= plan_.max_restarts) {
    refusal_ = fmt::format("no restart: all {} of launch.max_restarts are used", plan_.max_restarts);
    return false;
  }
  if (last_step >= 0) {
    without_progress_ = last_step > best_step_ ? 0 : without_progress_ + 1;
    best_step_ = std::max(best_step_, last_step);
    if (plan_.max_restarts_without_progress > 0 && without_progress_ >= plan_.max_restarts_without_progress) {
      refusal_ = fmt::format(
          "no restart: {} restarts in a row came no further than step {} "
          "(launch.max_restarts_without_progress)",
          without_progress_, best_step_);
      return false;
    }
  }
  ++used_;
  return true;
}

}  // namespace trainer::launch
