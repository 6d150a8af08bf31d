#pragma once

#include <functional>
#include <memory>

#include "dist/gradient_sync.h"

namespace trainer::dist {

// make_gradient_sync for more than one rank: c10d's Reducer. Its gradients are views of its communication
// buckets.
std::unique_ptr<GradientSync> make_reduced_gradients(
    Communicator& communicator, const spec::Parallel& options,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::vector<at::Tensor>& buffers,
    std::function<void()> on_waiting);

}  // namespace trainer::dist
