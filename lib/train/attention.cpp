#include "train/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "core/log.h"

namespace trainer::train {
namespace {

std::optional<at::SDPBackend> wanted_backend(spec::Attention attention) {
  switch (attention) {
    case spec::Attention::kFlash:
      return at::SDPBackend::flash_attention;
    case spec::Attention::kCudnn:
      return at::SDPBackend::cudnn_attention;
    case spec::Attention::kMemoryEfficient:
      return at::SDPBackend::efficient_attention;
    case spec::Attention::kMath:
      return at::SDPBackend::math;
    case spec::Attention::kAuto:
      break;
  }
  return {};
}

}  // namespace

std::vector<int32_t> measured_lengths(const Job& job) {
  const auto& [data, train] = std::tie(job.spec.data, job.spec.train);
  const auto longest = static_cast<int32_t>(data.max_length);
  const int64_t count =
      train.batch_tokens > 0 ? std::max<int64_t>(1, train.batch_tokens / longest) : train.batch_size;
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    if (job.spec.model.type != spec::ModelType::kGpt) {
      lengths.push_back(std::max(1, static_cast<int32_t>(longest * (i + 1) / count)));
      continue;
    }
    const int32_t second = data.documents == spec::Documents::kSeparate ? longest / 4 : 0;
    lengths.push_back(longest - second);
    if (second > 0) lengths.push_back(second);
  }
  return lengths;
}

void choose_attention(const Job& job, const kernels::AttentionShape& shape, const c10::Device& device,
                      dist::Communicator& communicator) {
  const std::vector<int32_t> lengths = measured_lengths(job);
  const bool equal_lengths =
      std::all_of(lengths.begin(), lengths.end(), [&](int32_t length) { return length == lengths[0]; });
  const auto time = [&](at::SDPBackend backend) {
    return kernels::time_attention(backend, shape, lengths, device);
  };
  const auto sum = [&](std::vector<double>& seconds) {
    const at::Tensor total = at::tensor(seconds, at::kDouble).to(device);
    communicator.all_reduce_sum(total);
    const at::Tensor on_host = total.cpu();
    std::copy_n(on_host.const_data_ptr<double>(), seconds.size(), seconds.begin());
  };
  const auto times = kernels::time_backends(wanted_backend(job.spec.train.attention), shape, equal_lengths,
                                            communicator.size(), time, sum);
  kernels::prefer_backends(times, device);
  if (!job.world.is_main()) return;
  log_info("attention: {} ({}; forward and backward of a layer)", kernels::to_string(times[0].backend),
           kernels::describe(times));
}

}  // namespace trainer::train
