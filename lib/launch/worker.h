#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include "job/world.h"

namespace trainer::launch {

// This process's place when an agent started it: ours (TRAINER_WORKER=1) or torchrun's (TORCHELASTIC_RUN_ID
// with LOCAL_RANK). Nothing when this process is to be an agent itself: RANK and WORLD_SIZE alone, which
// Kubeflow sets for a whole node, make no worker. Call it once, before threads: it removes the marker, so
// that programs which the worker starts are no workers. Throws SpecError on a variable that is missing or no
// number.
std::optional<World> take_worker_world();

// Tells people (standard error) and the agent (TORCHELASTIC_ERROR_FILE) why this worker fails; returns the
// exit code.
int report_worker_error(const std::exception& error, std::optional<int64_t> step) noexcept;

}  // namespace trainer::launch
