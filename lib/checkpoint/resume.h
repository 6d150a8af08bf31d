#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/state.h"
#include "dist/communicator.h"
#include "job/job.h"

namespace trainer::checkpoint {

// The checkpoints of a run.
std::filesystem::path directory_of(const std::filesystem::path& output_dir);

// Which checkpoint training goes on from, as checkpoint.resume has it; nothing: it begins at the first step. `restarted`:
// the launcher started this job before. Looks for the newest that is whole, and logs which it passed over and why.
// `data_fingerprint`: of the training data here. Throws CheckpointError where none of those it may use is whole, or the
// job or its data are not those of the checkpoint, so that no resume could be exact; logs other changes of the job. A
// collective, of which the main rank alone reads files.
std::optional<std::filesystem::path> find(const Job& job, bool restarted,
                                          const std::function<std::string()>& data_fingerprint,
                                          dist::Communicator& communicator);

// Fills `state` from a checkpoint that find() gave. The main rank alone reads files, but for tables. A collective. Throws
// CheckpointError.
void load(const std::filesystem::path& directory, const State& state, dist::Communicator& communicator);

}  // namespace trainer::checkpoint
