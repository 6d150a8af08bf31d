#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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
  int64_t global_batch = 0;           // samples an optimizer step (0 when batches are made by token budget)
  int64_t evaluation_every = 0;       // steps; 0: at the end of epochs; -1: never
  std::vector<std::string> warnings;  // settings without effect, for the header; each names its place
};

// `cuda_devices`: number of GPUs that this process sees. Where two keys exclude each other and one is said in
// the file, the other by --set, the latter holds. The resolved spec, written as YAML and read again, resolves
// to itself. Throws SpecError with every cross-field fault, at the places where the values were said. Reads
// no files.
Job resolve(spec::JobSpec spec, const World& world, int64_t cuda_devices);

// Whether what the job reads is there: model directory, tables, room for max_length. Throws SpecError with
// every fault.
void check_files(const Job& job);

}  // namespace trainer
