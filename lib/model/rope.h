#pragma once

#include <ATen/core/Tensor.h>

#include "job/gpt_config.h"

namespace trainer::model {

// Cosines of the D / 2 angles of every position, then sines: [max_positions, D] fp32. By transformers'
// arithmetic, with its scaling of frequencies.
at::Tensor rope_table(const GptConfig& config);

}  // namespace trainer::model
