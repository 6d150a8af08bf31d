#include "train/device_feed.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <utility>

namespace trainer::train {
namespace {

std::array<at::Tensor*, 11> tensors(data::Batch& batch) {
  data::Records& records = batch.records;
  return {&batch.input_ids, &batch.token_type_ids, &batch.position_ids, &batch.cu_seqlens,
          &batch.row_keys,  &batch.labels,         &records.dense,      &records.ids,
          &records.offsets, &records.weights,      &records.groups};
}

}  // namespace

DeviceFeed::DeviceFeed(data::Loader& loader, c10::Device device) : loader_(loader), device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  copy_stream_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

void DeviceFeed::prefetch() {
  if (device_.is_cpu() || has_ahead_) return;
  ahead_ = loader_.next();
  const c10::StreamGuard guard(*copy_stream_);
  for (at::Tensor* tensor : tensors(ahead_.batch)) {
    if (tensor->defined()) *tensor = tensor->to(device_, /*non_blocking=*/true);
  }
  copied_.emplace(device_.type());
  copied_->record(*copy_stream_);
  has_ahead_ = true;
}

data::MicroBatch DeviceFeed::next() {
  if (device_.is_cpu()) return loader_.next();
  prefetch();
  data::MicroBatch micro = std::move(ahead_);
  has_ahead_ = false;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream compute = guard.getStream(device_);
  copied_->block(compute);
  // The allocator must not give the memory away while the compute stream still reads it.
  for (at::Tensor* tensor : tensors(micro.batch)) {
    if (tensor->defined()) tensor->record_stream(compute);
  }
  return micro;
}

}  // namespace trainer::train
