#pragma once

#include <vector>

#include "launch/plan/preflight.h"

namespace trainer::launch {

// The part of check_node() that is about interfaces and names. Appends to `checks`.
void check_network(const PreflightInput& input, std::vector<Check>& checks);

}  // namespace trainer::launch
