#pragma once

#include <ATen/SDPBackend.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Which of LibTorch's kernels of attention, the backends of its scaled_dot_product_attention, a job on CUDA
// uses: the fastest, by measurement at its start. The choice lives in LibTorch's context, as that of TF32
// does: a priority order, so that a shape which the first can't do goes to the next.

namespace trainer::kernels {

std::string_view to_string(at::SDPBackend backend);  // "flash", "cudnn", "memory_efficient", "math"

// A model's attention.
struct AttentionShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  bool is_causal = false;
  double dropout = 0;
  at::ScalarType dtype = at::kFloat;
};

struct BackendTime {
  at::SDPBackend backend = at::SDPBackend::math;
  double seconds = 0;  // infinite where it can't be used
  std::string fault;   // why, where it is known: another rank's is not
};

// Seconds that a backend takes. Throws, whatever it may be, where it can't be used.
using TimeBackend = std::function<double(at::SDPBackend)>;
// Sums over ranks, in place: what makes all ranks choose the same. Called equally often on all of them.
using SumOverRanks = std::function<void(std::vector<double>&)>;

// Times backends; the first of the result is the one to use, then come the others by their time (mean over ranks),
// last those that can't be used. It is the fastest, but of those within kTie of it the first in the order of trial, so
// that noise does not make two runs of a job differ. Tried are `wanted` alone, else flash, cuDNN (not for sequences of
// different lengths: it makes a plan for every new batch of them) and memory-efficient attention (in fp32 the last one
// alone), and math, whose memory is quadratic, only where none of these can be used. Throws SpecError (of
// train.attention) when nothing can.
constexpr double kTie = 1.05;
std::vector<BackendTime> time_backends(std::optional<at::SDPBackend> wanted, const AttentionShape& shape,
                                       bool equal_lengths, int64_t num_ranks, const TimeBackend& time,
                                       const SumOverRanks& sum);
// "flash 0.41 ms, memory_efficient 0.92 ms; cudnn: <fault>".
std::string describe(const std::vector<BackendTime>& times);

// Forward and backward of one layer's attention over sequences of these lengths by this backend alone, on CUDA by
// its clock (events), after a warm-up. The default generator's state is set back.
double time_attention(at::SDPBackend backend, const AttentionShape& shape,
                      const std::vector<int32_t>& seqlens, const c10::Device& device);

// From now on attention on `device` is by the first of these that can do it, then by the others, math last.
void prefer_backends(const std::vector<BackendTime>& times, const c10::Device& device);
// The order, without those that are disabled.
std::vector<at::SDPBackend> backend_order();

// While it lives, this backend alone may be used.
class OnlyBackend {
 public:
  explicit OnlyBackend(at::SDPBackend backend);
  ~OnlyBackend();
  OnlyBackend(const OnlyBackend&) = delete;
  OnlyBackend& operator=(const OnlyBackend&) = delete;

 private:
  std::vector<at::SDPBackend> enabled_;  // before
};

}  // namespace trainer::kernels
