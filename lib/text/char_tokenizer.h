#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace trainer::text {

// {"type": "char", "characters": "..."} (in the order of code points) or {"type": "byte", "eos": true}.
inline constexpr const char* kCharTokenizerFile = "trainer_tokenizer.json";

// Throws DataError, also when the file's type is not `type` (kAuto: either).
std::shared_ptr<const Tokenizer> load_char_tokenizer(spec::TokenizerType type,
                                                     const std::filesystem::path& file);

}  // namespace trainer::text
