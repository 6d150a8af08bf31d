#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "dist/communicator.h"
#include "job/job.h"
#include "kernels/attention_backend.h"

namespace trainer::train {

// Lengths of the sequences of a micro-batch, as long as they get: what attention is measured on. Of one length where
// the job's batches are.
std::vector<int32_t> measured_lengths(const Job& job);

// On CUDA, before training: attention is by train.attention, or by the backend that is fastest for this job, the same
// on all ranks. A collective. The main rank logs the times. Throws SpecError when what the job says can't be used.
void choose_attention(const Job& job, const kernels::AttentionShape& shape, const c10::Device& device,
                      dist::Communicator& communicator);

}  // namespace trainer::train
