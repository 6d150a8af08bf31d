#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/state.h"
#include "dist/communicator.h"

namespace trainer::checkpoint {

using Files = std::map<std::string, tensors::WrittenFile>;

// Makes the directory `target` of what all ranks write, whole or not at all: `write` on the main rank, slices of tables on
// each into a temporary directory, which is flushed and takes the place of `target` when every rank is done. `write` returns
// what it can tell of its files; `finish`, on the main rank, gets that of all ranks' and adds the last file. A collective.
// Throws CheckpointError, on all ranks, with what failed on any; then nothing is left of it.
void save_directory(const std::filesystem::path& target, const std::vector<tensors::Slice>& tables,
                    dist::Communicator& communicator,
                    const std::function<Files(const std::filesystem::path&)>& write,
                    const std::function<void(const std::filesystem::path&, Files)>& finish = {});

// Saves <directory>/step_<n> that way. Then removes all but the last `keep_last` (0: none) of those up to this step.
// `manifest`: all but values and files. A collective; throws as save_directory().
void save(const std::filesystem::path& directory, const State& state, Manifest manifest, int64_t keep_last,
          dist::Communicator& communicator);

}  // namespace trainer::checkpoint
