#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>

#include "spec/job_spec.h"

namespace trainer::train {

// LibTorch's autocast for a scope. Its cache of cast weights is cleared at the end: kept, it would outlive
// the optimizer step that changes the weights.
class Autocast {
 public:
  Autocast(c10::DeviceType device, spec::Precision precision)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    if (precision == spec::Precision::kFp32) return;
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, precision == spec::Precision::kBf16 ? at::kBFloat16 : at::kHalf);
    at::autocast::increment_nesting();
    active_ = true;
  }
  ~Autocast() {
    if (!active_) return;
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType dtype_;  // of the scope around
  bool active_ = false;
};

}  // namespace trainer::train
