#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "job/world.h"
#include "spec/job_spec.h"

namespace trainer {

// A job spec resolved against the world: every choice made, sizes derived, cross-field rules checked.
struct Job {
  spec::JobSpec spec;
  World world;
  bool cuda = false;    // device of this job's workers
  std::string backend;  // "nccl", "gloo"; "none" when world.size is 1
  std::filesystem::path output_dir;
  int64_t global_batch = 0;      // samples an optimizer step (0 when batches are made by token budget)
  int64_t evaluation_every = 0;  // steps; 0: at the end of epochs; -1: never
};

// `cuda_devices`: number of usable GPUs on this node. Throws SpecError with every cross-field fault.
Job resolve(spec::JobSpec spec, const World& world, int64_t cuda_devices);

}  // namespace trainer
