#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "core/clock.h"
#include "report/progress.h"
#include "spec/job_spec.h"

namespace trainer::metrics {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

enum class Phase { kDataWait, kForward, kBackward, kSync, kOptimizer, kLog, kEvaluation, kCheckpoint };
constexpr int kNumPhases = 8;
const char* name(Phase phase);

// Host time by phase. On a CPU that is where time goes. On CUDA the host only queues work, so the wait for
// the device falls to the phase that reads a value, kLog (and to none else: the loop has no other device
// sync).
class PhaseTimes {
 public:
  PhaseTimes() = default;
  // `page`: where the phases are published as they begin.
  explicit PhaseTimes(report::ProgressPage* page) : page_(page) {}
  // Ends the running phase, if any, and starts this one.
  void start(Phase phase) { switch_to(static_cast<int>(phase)); }
  void stop() { switch_to(-1); }
  double seconds(Phase phase) const { return static_cast<double>(ns_[static_cast<size_t>(phase)]) * 1e-9; }
  void set(Phase phase, double seconds) { ns_[static_cast<size_t>(phase)] = to_ns(seconds); }
  // Time that was found to belong elsewhere; `from` may be the running phase.
  void move(Phase from, Phase to, double seconds) {
    const auto ns = to_ns(seconds);
    ns_[static_cast<size_t>(from)] -= ns;
    ns_[static_cast<size_t>(to)] += ns;
  }
  // A view of all of it, in nanoseconds, up to now.
  at::Tensor state();
  // Without evaluation and checkpoints.
  double training_seconds() const;
  // What this rank's own work in steps took: without waiting for the other ranks.
  int64_t busy_ns() const;

 private:
  void switch_to(int phase) {
    const int64_t now = monotonic_ns();
    if (running_ >= 0) ns_[static_cast<size_t>(running_)] += now - since_ns_;
    running_ = phase;
    since_ns_ = now;
    if (page_ != nullptr && phase >= 0) page_->begin(published(static_cast<Phase>(phase)), now);
  }
  static report::Phase published(Phase phase);

  report::ProgressPage* page_ = nullptr;
  std::array<int64_t, kNumPhases> ns_{};
  int running_ = -1;
  int64_t since_ns_ = 0;
};

struct Rates {
  double samples_per_s = kNotMeasured;
  double tokens_per_s = kNotMeasured;
  double flops = kNotMeasured;  // per second, that were executed (model.forward_flops × 3)
};

// Work done, as counts and as rates over a time that the caller measures.
struct Work {
  double samples = 0;
  double tokens = 0;
  double flops = 0;
  Work& operator+=(const Work& other);
  // NaN in a time of 0.
  Rates per_second(double seconds) const;
};

// Dense peak of one device in FLOP/s at the precision of its matrix products, from the vendor's data sheets;
// empty for a device that the table does not know (then no MFU is printed). `device_name` as the CUDA driver
// reports it.
std::optional<double> peak_flops(std::string_view device_name, spec::Precision precision, bool tf32);

// FLOP/s of this process's CPU threads in matrix products (bf16, else fp32), measured: the best product of
// 768 x 768 within 0.1 s. Other programs that run all that time make it too low.
double measured_cpu_peak_flops(spec::Precision precision);

// Most memory held so far: on a CPU this process's resident size, on CUDA what LibTorch's allocator gave out
// on the device.
int64_t peak_memory_bytes(const at::Device& device);

}  // namespace trainer::metrics
