#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "text/wordpiece/wordpiece.h"

namespace trainer::text {

// How many tokens of each text stay, as Hugging Face tokenizers' truncate_encodings. `num_second` is empty
// for one text, `num_special` are the special tokens that max_length includes. Throws DataError when the
// strategy cannot reach max_length.
std::pair<size_t, size_t> truncate(size_t num_first, std::optional<size_t> num_second, size_t num_special,
                                   const EncodeOptions& options);

}  // namespace trainer::text
