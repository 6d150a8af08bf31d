#include "metrics/meters.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "core/file.h"

namespace trainer::metrics {
namespace {

// Dense TFLOP/s with fp32 accumulation, from the data sheets; 0: the device has no such unit. More special
// names come first: the first name that occurs in the device's wins.
struct Peak {
  std::string_view name;
  double fp32, tf32, bf16, fp16;
};
constexpr Peak kPeaks[] = {
    {"GB200", 80, 1250, 2500, 2500},
    {"B200", 75, 1100, 2250, 2250},
    {"H200 NVL", 60, 417.5, 835.5, 835.5},
    {"H200", 67, 494.7, 989.4, 989.4},
    {"H100 PCIe", 51, 378, 756, 756},
    {"H100 NVL", 60, 417.5, 835.5, 835.5},
    {"H100", 67, 494.7, 989.4, 989.4},
    {"A100", 19.5, 156, 312, 312},
    {"A40", 37.4, 74.8, 149.7, 149.7},
    {"A30", 10.3, 82, 165, 165},
    {"A10", 31.2, 62.5, 125, 125},
    {"L40S", 91.6, 183, 362, 362},
    {"L40", 90.5, 90.5, 181, 181},
    {"L4", 30.3, 60, 121, 121},
    {"V100-SXM2", 15.7, 15.7, 0, 125},
    {"V100-PCIE", 14, 14, 0, 112},
    {"T4", 8.1, 8.1, 0, 65},
    {"RTX 5090", 104.8, 104.8, 209.5, 209.5},
    {"RTX 4090", 82.6, 82.6, 165.2, 165.2},
    {"RTX 3090", 35.6, 35.6, 71, 71},
};

// Whole words only: an A10G is no A10, an A100X no A100.
bool has_word(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return false;
  const auto ends = [](char c) { return c == ' ' || c == '-' || c == '_'; };
  const size_t end = at + word.size();
  return (at == 0 || ends(text[at - 1])) && (end == text.size() || ends(text[end]));
}

}  // namespace

const char* name(Phase phase) {
  constexpr const char* kNames[kNumPhases] = {"data_wait", "forward", "backward",   "sync",
                                              "optimizer", "log",     "evaluation", "checkpoint"};
  return kNames[static_cast<size_t>(phase)];
}

report::Phase PhaseTimes::published(Phase phase) {
  using report::Phase::kBackward, report::Phase::kCheckpoint, report::Phase::kDataWait,
      report::Phase::kEvaluation, report::Phase::kForward, report::Phase::kLog, report::Phase::kOptimizer,
      report::Phase::kSync;
  constexpr report::Phase kPublished[kNumPhases] = {kDataWait,  kForward, kBackward,   kSync,
                                                    kOptimizer, kLog,     kEvaluation, kCheckpoint};
  return kPublished[static_cast<size_t>(phase)];
}

// kLog waits for the others too: its sums are a collective.
int64_t PhaseTimes::busy_ns() const {
  int64_t sum = 0;
  for (const Phase phase : {Phase::kDataWait, Phase::kForward, Phase::kBackward, Phase::kOptimizer})
    sum += ns_[static_cast<size_t>(phase)];
  return sum;
}

at::Tensor PhaseTimes::state() {
  switch_to(running_);
  return at::from_blob(ns_.data(), {kNumPhases}, at::kLong);
}

double PhaseTimes::training_seconds() const {
  double sum = 0;
  for (int i = 0; i < static_cast<int>(Phase::kEvaluation); ++i) sum += seconds(static_cast<Phase>(i));
  return sum;
}

Work& Work::operator+=(const Work& other) {
  samples += other.samples;
  tokens += other.tokens;
  flops += other.flops;
  return *this;
}

Rates Work::per_second(double seconds) const {
  if (!(seconds > 0)) return {};
  return {samples / seconds, tokens / seconds, flops / seconds};
}

std::optional<double> peak_flops(std::string_view device_name, spec::Precision precision, bool tf32) {
  if (has_word(device_name, "MIG")) return std::nullopt;  // a slice of a GPU: the name doesn't say how large
  for (const Peak& peak : kPeaks) {
    if (!has_word(device_name, peak.name)) continue;
    const double tera = precision == spec::Precision::kBf16   ? peak.bf16
                        : precision == spec::Precision::kFp16 ? peak.fp16
                        : tf32                                ? peak.tf32
                                                              : peak.fp32;
    return tera > 0 ? std::optional(tera * 1e12) : std::nullopt;
  }
  return std::nullopt;
}

double measured_cpu_peak_flops(spec::Precision precision) {
  constexpr int64_t kSize = 768;
  const at::NoGradGuard no_grad;
  const auto dtype = precision == spec::Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor a = at::ones({kSize, kSize}, dtype), b = at::ones_like(a);
  at::Tensor c = at::mm(a, b);  // threads and code are there after the first
  double best_s = std::numeric_limits<double>::infinity();
  constexpr int64_t kSpanNs = 100'000'000;  // long enough for a moment that other programs leave free
  const int64_t start_ns = monotonic_ns();
  for (int i = 0; i < 5 || monotonic_ns() - start_ns < kSpanNs; ++i) {
    const int64_t begin_ns = monotonic_ns();
    at::mm_out(c, a, b);
    best_s = std::min(best_s, static_cast<double>(monotonic_ns() - begin_ns) * 1e-9);
  }
  return 2.0 * kSize * kSize * kSize / best_s;
}

int64_t peak_memory_bytes(const at::Device& device) {
  if (!device.is_cpu()) {
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  }
  // Not getrusage's: that one counts what the process was before exec.
  const std::string status = read_file("/proc/self/status");
  const size_t at = status.find("VmHWM:");
  return at == std::string::npos ? 0 : std::atoll(status.c_str() + at + 6) * 1024;  // kB
}

}  // namespace trainer::metrics
