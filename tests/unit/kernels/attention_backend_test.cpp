#include "kernels/attention_backend.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>
#include <stdexcept>

#include "core/error.h"

// The measurement itself: tests/gpu/gpu_test.cpp.

using namespace trainer;
using namespace trainer::kernels;
using Backend = at::SDPBackend;
using Catch::Matchers::Message;

namespace {

constexpr double kFails = -1;
const AttentionShape kBf16{.heads = 12, .kv_heads = 12, .head_dim = 64, .dtype = at::kBFloat16};

// A clock that tells these times.
struct Fake {
  std::map<Backend, double> seconds;
  std::vector<Backend> tried = {};

  std::vector<BackendTime> run(std::optional<Backend> wanted = {}, const AttentionShape& shape = kBf16,
                               bool equal_lengths = true) {
    const auto time = [this](Backend backend) {
      tried.push_back(backend);
      const double result = seconds.at(backend);
      TORCH_CHECK(result != kFails, "no ", to_string(backend), " here\nand a second line");
      return result;
    };
    return time_backends(wanted, shape, equal_lengths, 1, time, [](std::vector<double>&) {});
  }
};

std::string names(const std::vector<Backend>& backends) {
  std::string text;
  for (const Backend backend : backends) text.append(text.empty() ? "" : " ").append(to_string(backend));
  return text;
}

std::string names(const std::vector<BackendTime>& times) {
  std::vector<Backend> backends;
  for (const BackendTime& t : times) backends.push_back(t.backend);
  return names(backends);
}

constexpr auto kFlash = Backend::flash_attention, kCudnn = Backend::cudnn_attention,
               kEfficient = Backend::efficient_attention, kMath = Backend::math;

}  // namespace

TEST_CASE("the fastest backend comes first, and math is not tried where another can be used") {
  Fake fake{{{kFlash, 2e-3}, {kCudnn, 1e-3}, {kEfficient, 3e-3}}};
  const auto times = fake.run();
  CHECK(names(fake.tried) == "flash cudnn memory_efficient");
  CHECK(names(times) == "cudnn flash memory_efficient");
  CHECK(describe(times) == "cudnn 1 ms, flash 2 ms, memory_efficient 3 ms");
}

TEST_CASE("of backends that are about as fast the first in the order of trial is taken") {
  Fake equal{{{kFlash, 1e-3}, {kCudnn, 1e-3}, {kEfficient, 1e-3}}};
  CHECK(names(equal.run()) == "flash cudnn memory_efficient");
  Fake about{{{kFlash, 1.1e-3}, {kCudnn, 1.04e-3}, {kEfficient, 1e-3}}};
  CHECK(names(about.run()) == "cudnn memory_efficient flash");
}

TEST_CASE("a backend that can't be used comes last, with its reason") {
  Fake fake{{{kFlash, kFails}, {kCudnn, kFails}, {kEfficient, 3.14159e-3}}};
  const auto times = fake.run();
  CHECK(names(times) == "memory_efficient flash cudnn");
  CHECK(describe(times) == "memory_efficient 3.14 ms; flash: no flash here; cudnn: no cudnn here");
}

TEST_CASE("the reason is LibTorch's warnings where there are any, without those about what was disabled") {
  const auto time = [](Backend backend) -> double {
    if (backend == kFlash) throw std::runtime_error("not LibTorch's");
    if (backend == kEfficient) return 1e-3;
    TORCH_WARN("cuDNN attention kernel not used because:");
    TORCH_WARN("Flash attention has been runtime disabled.");
    TORCH_WARN("head_dim should be a multiple of 8");
    TORCH_CHECK(false, "No available kernel. Aborting execution.");
  };
  const auto times = time_backends({}, kBf16, true, 1, time, [](std::vector<double>&) {});
  CHECK(describe(times) ==
        "memory_efficient 1 ms; flash: not LibTorch's; cudnn: head_dim should be a multiple of 8");
}

TEST_CASE("what can't apply is not tried: in fp32, and for sequences of different lengths") {
  Fake fake{{{kFlash, 1e-3}, {kEfficient, 2e-3}}};
  fake.run({}, kBf16, /*equal_lengths=*/false);
  CHECK(names(fake.tried) == "flash memory_efficient");
  fake.tried.clear();
  fake.run({}, {.dtype = at::kFloat});
  CHECK(names(fake.tried) == "memory_efficient");
}

TEST_CASE("math is the last resort") {
  Fake fake{{{kFlash, kFails}, {kCudnn, kFails}, {kEfficient, kFails}, {kMath, 9e-3}}};
  const auto times = fake.run();
  CHECK(names(fake.tried) == "flash cudnn memory_efficient math");
  CHECK(to_string(times[0].backend) == "math");
}

TEST_CASE("what the job says is used alone, whatever is faster") {
  Fake fake{{{kFlash, 1e-3}, {kMath, 9e-3}}};
  CHECK(names(fake.run(kMath)) == "math");
}

TEST_CASE("a job whose backends all fail is told why") {
  Fake fake{{{kFlash, kFails}, {kCudnn, kFails}, {kEfficient, kFails}, {kMath, kFails}}};
  CHECK_THROWS_MATCHES(
      fake.run(kCudnn), SpecError,
      Message("train.attention: got cudnn, which can't be used here (12 heads of 64 channels in BFloat16): "
              "cudnn: no cudnn here; expected auto, or another one"));
  CHECK_THROWS_MATCHES(
      fake.run({}, kBf16, false), SpecError,
      Message("train.attention: got auto, which can't be used here (12 heads of 64 channels in BFloat16): "
              "flash: no flash here; memory_efficient: no memory_efficient here; math: no math here; "
              "hint: lower train.batch_size or data.max_length"));
}

TEST_CASE("ranks choose the same, by the sums of their times, and none that fails on one of them") {
  const auto flash_is_slower_elsewhere = [](std::vector<double>& seconds) {
    const std::vector<double> other = {5e-3, std::numeric_limits<double>::infinity(), 3e-3};
    for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += other[i];
  };
  const auto times = time_backends(
      {}, kBf16, true, 2,
      [](Backend backend) { return backend == kFlash   ? 2e-3
                                   : backend == kCudnn ? 1e-3
                                                       : 3e-3; },
      flash_is_slower_elsewhere);
  CHECK(describe(times) == "memory_efficient 3 ms, flash 3.5 ms; cudnn: another rank can't use it");
}

TEST_CASE("LibTorch's order begins with what was measured and ends with math; one can be used alone") {
  const auto before = at::globalContext().sDPPriorityOrder();
  prefer_backends({{.backend = kEfficient, .seconds = 1e-3, .fault = {}},
                   {.backend = kFlash, .seconds = std::numeric_limits<double>::infinity(), .fault = "no"}},
                  at::kCPU);
  CHECK(names(backend_order()) == "memory_efficient flash cudnn math other");
  {
    const OnlyBackend only(kMath);
    CHECK(names(backend_order()) == "math");
  }
  CHECK(backend_order().size() == 5);
  std::vector<int64_t> order;
  for (const Backend backend : before) order.push_back(static_cast<int64_t>(backend));
  at::globalContext().setSDPPriorityOrder(order);
}
