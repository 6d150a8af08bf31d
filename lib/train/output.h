#pragma once

#include <filesystem>
#include <optional>

#include "dist/communicator.h"
#include "model/model.h"

namespace trainer::train {

// Saves the model as a Hugging Face directory, a recommender's tables with it, whole or not at all. A collective. Throws CheckpointError, on all ranks.
void save_model(const std::filesystem::path& directory, model::Model& model,
                dist::Communicator& communicator);

// Whether this process is of a job that its launcher started before.
bool is_restarted();

// Makes the output directory this run's, on the main rank. `resume_from`: the checkpoint that training goes on from. In
// the directory of a run that goes on, only later checkpoints than that are put out of the way. Else what an earlier run
// left goes to `previous` in it: what lies there belongs together; one that left no model and no checkpoint does not take
// the place of one that did. Logs are the launcher's. Throws CheckpointError.
void prepare_output(const std::filesystem::path& output_dir,
                    const std::optional<std::filesystem::path>& resume_from, bool restarted);

}  // namespace trainer::train
