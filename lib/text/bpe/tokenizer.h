#pragma once

#include <filesystem>
#include <memory>

#include "text/tokenizer.h"

namespace trainer::text {

// Byte-level BPE, with the ids of Hugging Face tokenizers for all UTF-8. Bytes that are not UTF-8 (which
// Hugging Face cannot be given) are cut into words as if each ill-formed sequence was U+FFFD, but are encoded as
// the bytes they are. For paths see load_tokenizer(). Throws DataError.
std::shared_ptr<const Tokenizer> load_bpe_tokenizer(const std::filesystem::path& path);

}  // namespace trainer::text
