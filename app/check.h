#pragma once

#include "torch_library.h"

namespace trainer::app {

// Throws trainer::Error with what is wrong with the job or its data.
int check(const TorchCommand& command);

}  // namespace trainer::app
