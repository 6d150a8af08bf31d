#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "model/model.h"
#include "tensors/named.h"
#include "tensors/slices.h"

namespace trainer::checkpoint {

// All that training is at a step, as views of where it lies: saving reads them, resuming fills them in place. On one rank;
// what is not said to be a rank's own is the same on all.
struct State {
  model::Model& model;
  c10::Device device;  // whose random generator is part of it, beside the CPU's
  tensors::NamedTensors optimizer, ema;
  tensors::NamedTensors progress;  // counters
  tensors::NamedTensors
      evaluations;                  // counters that a resumed job may lack, since it measures something else
  tensors::NamedTensors rank_sums;  // a rank's own; at another number of ranks only their sum stays
  std::vector<tensors::Slice> tables;  // this rank's
};

}  // namespace trainer::checkpoint
