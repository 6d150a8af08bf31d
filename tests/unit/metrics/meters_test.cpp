#include "metrics/meters.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

using namespace trainer::metrics;
using trainer::spec::Precision;

TEST_CASE("phases are published as they begin, and the time that a rank needs for itself is summed") {
  trainer::report::ProgressPage page;
  PhaseTimes times(&page);
  times.start(Phase::kDataWait);
  CHECK(page.phase == trainer::report::Phase::kDataWait);
  CHECK(page.beat_ns > 0);
  const int64_t beat = page.beat_ns;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  times.start(Phase::kCheckpoint);
  CHECK(page.phase == trainer::report::Phase::kCheckpoint);
  CHECK(page.beat_ns - beat >= 2'000'000);
  const int64_t busy = times.busy_ns();
  CHECK(busy == page.beat_ns - beat);
  for (const Phase other : {Phase::kSync, Phase::kLog, Phase::kEvaluation}) {
    times.start(other);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  times.stop();
  CHECK(times.busy_ns() == busy);
}

TEST_CASE("a phase's time is counted once, to the phase that runs") {
  PhaseTimes times;
  const double before = trainer::monotonic_s();
  times.start(Phase::kForward);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  times.start(Phase::kEvaluation);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  times.start(Phase::kForward);
  times.stop();
  times.stop();
  const double all = trainer::monotonic_s() - before;
  CHECK(times.seconds(Phase::kForward) >= 0.005);
  CHECK(times.seconds(Phase::kEvaluation) >= 0.005);
  CHECK(times.seconds(Phase::kForward) + times.seconds(Phase::kEvaluation) <= all);
  CHECK(times.seconds(Phase::kBackward) == 0);
  CHECK(times.training_seconds() == times.seconds(Phase::kForward));
  const double forward = times.seconds(Phase::kForward);
  times.move(Phase::kForward, Phase::kSync, 0.002);
  CHECK(times.seconds(Phase::kSync) == Approx(0.002));
  CHECK(times.seconds(Phase::kForward) == Approx(forward - 0.002));
}

TEST_CASE("rates are work over time, and not a number without time") {
  Work work{16, 800, 1e9};
  work += {16, 900, 2e9};
  const Rates rates = work.per_second(2);
  CHECK(rates.samples_per_s == 16);
  CHECK(rates.tokens_per_s == 850);
  CHECK(rates.flops == 1.5e9);
  CHECK(std::isnan(work.per_second(0).samples_per_s));
}

TEST_CASE("a GPU's peak is found by its name and the precision") {
  CHECK(peak_flops("NVIDIA A100-SXM4-80GB", Precision::kBf16, false) == 312e12);
  CHECK(peak_flops("NVIDIA A100-SXM4-80GB", Precision::kFp32, false) == 19.5e12);
  CHECK(peak_flops("NVIDIA A100-SXM4-80GB", Precision::kFp32, true) == 156e12);
  CHECK(peak_flops("NVIDIA H100 80GB HBM3", Precision::kFp16, false) == 989.4e12);
  CHECK(peak_flops("NVIDIA H100 PCIe", Precision::kBf16, false) == 756e12);
  CHECK(peak_flops("NVIDIA H200", Precision::kBf16, false) == 989.4e12);
  CHECK(peak_flops("NVIDIA GB200", Precision::kBf16, false) == 2500e12);
  CHECK(peak_flops("NVIDIA B200", Precision::kBf16, false) == 2250e12);
  CHECK(peak_flops("NVIDIA L40S", Precision::kBf16, false) == 362e12);
  CHECK(peak_flops("Tesla T4", Precision::kFp16, false) == 65e12);
  CHECK(peak_flops("NVIDIA GeForce RTX 4090", Precision::kBf16, false) == 165.2e12);
}

TEST_CASE("a device that the table does not know has no peak") {
  for (const char* device :
       {"AMD EPYC", "", "NVIDIA A10G", "NVIDIA A100X", "NVIDIA A100 80GB PCIe MIG 1g.10gb"}) {
    INFO(device);
    CHECK_FALSE(peak_flops(device, Precision::kBf16, false).has_value());
  }
  CHECK_FALSE(peak_flops("Tesla V100-SXM2-16GB", Precision::kBf16, false).has_value());  // has no bf16 units
}

TEST_CASE("peak memory is the largest resident size so far") {
  const int64_t before = peak_memory_bytes(at::kCPU);
  std::vector<char> block(int64_t{256} << 20, 1);
  CHECK(peak_memory_bytes(at::kCPU) >= before);
  CHECK(peak_memory_bytes(at::kCPU) >= static_cast<int64_t>(block.size()));
}
