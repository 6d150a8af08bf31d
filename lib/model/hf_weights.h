#pragma once

#include <cstdint>

#include "model/bert.h"
#include "model/safetensors.h"

namespace trainer::model {

// Initializes `model` as transformers does (normal of initializer_range, zero biases, unit norms, a zero
// padding row) where `files` (null: none) have no weight, else copies the weight, cast to fp32. Understands
// weights saved with or without the prefix "bert.", and norms named gamma and beta. The random numbers are a
// function of `seed` alone. Throws CheckpointError with every shape that differs, by name; `where` names the
// files.
LoadReport load_weights(BertClassifier& model, const WeightFiles* files, const std::string& where,
                        uint64_t seed);

}  // namespace trainer::model
