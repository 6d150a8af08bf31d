#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include "data/loader.h"

namespace trainer::train {

// Brings micro-batches to the device. On CUDA one batch ahead, by non-blocking copies from pinned memory on a
// stream of their own; on a CPU they are there already.
class DeviceFeed {
 public:
  DeviceFeed(data::Loader& loader, c10::Device device);
  // Its tensors may be used on the current stream.
  data::MicroBatch next();
  // Starts bringing the next one. Call it when the work on this one is queued: it may wait for the loader.
  void prefetch();

 private:
  data::Loader& loader_;
  c10::Device device_;
  std::optional<c10::Stream> copy_stream_;
  std::optional<c10::Event> copied_;
  data::MicroBatch ahead_;
  bool has_ahead_ = false;
};

}  // namespace trainer::train
