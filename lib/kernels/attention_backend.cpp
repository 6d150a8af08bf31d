#include "kernels/attention_backend.h"

#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "kernels/composed.h"

namespace trainer::kernels {
namespace {

using Backend = at::SDPBackend;
constexpr Backend kAll[] = {Backend::flash_attention, Backend::cudnn_attention, Backend::efficient_attention,
                            Backend::math, Backend::overrideable};

bool is_enabled(Backend backend) {
  const at::Context& context = at::globalContext();
  switch (backend) {
    case Backend::flash_attention:
      return context.userEnabledFlashSDP();
    case Backend::cudnn_attention:
      return context.userEnabledCuDNNSDP();
    case Backend::efficient_attention:
      return context.userEnabledMemEfficientSDP();
    case Backend::math:
      return context.userEnabledMathSDP();
    default:
      return context.userEnabledOverrideableSDP();
  }
}

void enable_only(const std::vector<Backend>& backends) {
  at::Context& context = at::globalContext();
  const auto has = [&](Backend backend) {
    return std::find(backends.begin(), backends.end(), backend) != backends.end();
  };
  context.setSDPUseFlash(has(Backend::flash_attention));
  context.setSDPUseCuDNN(has(Backend::cudnn_attention));
  context.setSDPUseMemEfficient(has(Backend::efficient_attention));
  context.setSDPUseMath(has(Backend::math));
  context.setSDPUseOverrideable(has(Backend::overrideable));
}

// LibTorch tells by warnings why a backend can't do it, among them that the others are disabled.
class Reasons : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::string& text = warning.msg();
    if (text.find("runtime disabled") == std::string::npos && !text.ends_with("because:"))
      text_ += (text_.empty() ? "" : "; ") + text;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The default generator's state is the same afterwards.
class KeptGenerator {
 public:
  explicit KeptGenerator(const c10::Device& device)
      : generator_(at::globalContext().defaultGenerator(device)) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeptGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

std::string first_line(std::string text) {
  return text.substr(0, text.find('\n'));
}

// With faults for those that threw on this rank, not yet in order.
std::vector<BackendTime> times_of(const std::vector<Backend>& backends, int64_t num_ranks,
                                  const TimeBackend& time, const SumOverRanks& sum) {
  std::vector<BackendTime> times;
  std::vector<double> seconds;
  for (const Backend backend : backends) {
    BackendTime result{.backend = backend, .seconds = std::numeric_limits<double>::infinity(), .fault = {}};
    Reasons reasons;
    const c10::WarningUtils::WarningHandlerGuard guard(&reasons);
    try {
      result.seconds = time(backend);
    } catch (const c10::Error& error) {
      result.fault = reasons.text().empty() ? first_line(error.what_without_backtrace()) : reasons.text();
    } catch (const std::exception& error) {
      result.fault = first_line(error.what());
    }
    seconds.push_back(result.seconds);
    times.push_back(std::move(result));
  }
  sum(seconds);
  for (size_t i = 0; i < times.size(); ++i) {
    times[i].seconds = seconds[i] / static_cast<double>(num_ranks);
    if (std::isinf(seconds[i]) && times[i].fault.empty()) times[i].fault = "another rank can't use it";
  }
  return times;
}

bool any_usable(const std::vector<BackendTime>& times) {
  return std::any_of(times.begin(), times.end(),
                     [](const BackendTime& t) { return std::isfinite(t.seconds); });
}

}  // namespace

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::flash_attention:
      return "flash";
    case Backend::cudnn_attention:
      return "cudnn";
    case Backend::efficient_attention:
      return "memory_efficient";
    case Backend::math:
      return "math";
    default:
      return "other";
  }
}

std::vector<BackendTime> time_backends(std::optional<Backend> wanted, const AttentionShape& shape,
                                       bool equal_lengths, int64_t num_ranks, const TimeBackend& time,
                                       const SumOverRanks& sum) {
  std::vector<Backend> tried;
  if (wanted) {
    tried = {*wanted};
  } else {
    if (shape.dtype != at::kFloat) {
      tried.push_back(Backend::flash_attention);
      if (equal_lengths) tried.push_back(Backend::cudnn_attention);
    }
    tried.push_back(Backend::efficient_attention);
  }
  std::vector<BackendTime> times = times_of(tried, num_ranks, time, sum);
  if (!wanted && !any_usable(times)) {
    const auto math = times_of({Backend::math}, num_ranks, time, sum);
    times.insert(times.end(), math.begin(), math.end());
  }
  if (!any_usable(times)) {
    fail<SpecError>(
        "train.attention: got {}, which can't be used here ({} heads of {} channels in {}): {}; {}",
        wanted ? to_string(*wanted) : "auto", shape.heads, shape.head_dim, c10::toString(shape.dtype),
        describe(times),
        wanted ? "expected auto, or another one" : "hint: lower train.batch_size or data.max_length");
  }
  const auto is_faster = [](const BackendTime& a, const BackendTime& b) { return a.seconds < b.seconds; };
  const double fastest = std::min_element(times.begin(), times.end(), is_faster)->seconds;
  const Backend chosen = std::find_if(times.begin(), times.end(), [&](const BackendTime& t) {
                           return t.seconds <= kTie * fastest;
                         })->backend;
  std::stable_sort(times.begin(), times.end(), is_faster);
  std::stable_partition(times.begin(), times.end(),
                        [&](const BackendTime& t) { return t.backend == chosen; });
  return times;
}

std::string describe(const std::vector<BackendTime>& times) {
  std::string usable, others;
  for (const BackendTime& t : times) {
    if (std::isfinite(t.seconds)) {
      usable +=
          fmt::format("{}{} {:.3g} ms", usable.empty() ? "" : ", ", to_string(t.backend), 1e3 * t.seconds);
    } else {
      others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", to_string(t.backend), t.fault);
    }
  }
  return usable + (usable.empty() || others.empty() ? "" : "; ") + others;
}

double time_attention(Backend backend, const AttentionShape& shape, const std::vector<int32_t>& seqlens,
                      const c10::Device& device) {
  constexpr int kWarmUp = 3, kRounds = 5, kStepsARound = 4;
  const OnlyBackend only(backend);
  const KeptGenerator kept(device);

  std::vector<int32_t> starts(seqlens.size() + 1);
  std::partial_sum(seqlens.begin(), seqlens.end(), starts.begin() + 1);
  const at::Tensor cu_seqlens = at::tensor(starts, at::kInt).to(device);
  const auto options = at::TensorOptions(shape.dtype).device(device);
  const int64_t tokens = starts.back(), all_heads = shape.heads + 2 * shape.kv_heads;
  at::Tensor qkv = at::randn({tokens, all_heads * shape.head_dim}, options).requires_grad_();
  const at::Tensor gradient = at::randn({tokens, shape.heads * shape.head_dim}, options);
  const Dropout dropout{
      .p = shape.dropout, .row_keys = at::zeros({tokens}, options.dtype(at::kLong)), .site = 0};
  const auto step = [&] {
    const at::Tensor out =
        shape.is_causal
            ? composed::causal_attention(qkv, cu_seqlens, seqlens, shape.heads, shape.kv_heads, {}, dropout)
            : composed::varlen_attention(qkv, cu_seqlens, seqlens, shape.heads, dropout);
    out.backward(gradient);
    qkv.mutable_grad().reset();
  };

  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp; ++i) step();
  for (int round = 0; round < kRounds; ++round) {
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // with times
    c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    for (int i = 0; i < kStepsARound; ++i) step();
    end.record(stream);
    end.synchronize();
    seconds.push_back(begin.elapsedTime(end) * 1e-3 / kStepsARound);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

void prefer_backends(const std::vector<BackendTime>& times, const c10::Device& device) {
  std::vector<int64_t> order;
  const auto add = [&](Backend backend) {
    const auto number = static_cast<int64_t>(backend);
    if (std::find(order.begin(), order.end(), number) == order.end()) order.push_back(number);
  };
  for (const BackendTime& t : times) {
    if (std::isfinite(t.seconds)) add(t.backend);
  }
  for (const Backend backend : kAll) add(backend);
  // LibTorch sets an order of its own when it is first asked on CUDA: let it.
  const at::Tensor any = at::zeros({1, 1, 8, 8}, at::TensorOptions(at::kHalf).device(device));
  at::_fused_sdp_choice(any, any, any);
  at::globalContext().setSDPPriorityOrder(order);
}

std::vector<Backend> backend_order() {
  std::vector<Backend> order;
  for (const Backend backend : at::globalContext().sDPPriorityOrder()) {
    if (is_enabled(backend)) order.push_back(backend);
  }
  return order;
}

OnlyBackend::OnlyBackend(Backend backend) {
  std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(enabled_), is_enabled);
  enable_only({backend});
}

OnlyBackend::~OnlyBackend() {
  enable_only(enabled_);
}

}  // namespace trainer::kernels
