#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spec/job_spec.h"
#include "tokens/token_stream.h"

namespace trainer::tokens {

// What a .bin file is, by an .idx beside it, else by its first bytes: kMegatron, kLlmc, else kNanogpt, which has no
// header. Throws DataError when it is none of these, SpecError when it is prepare's and its .idx is gone.
spec::FileFormat detect_token_format(const std::filesystem::path& bin);

// nanoGPT's .bin: uint16 ids and nothing else. Throws DataError.
TokenPart open_nanogpt(const std::filesystem::path& bin);

// llm.c's .bin: 256 int32 (magic, version, number of tokens), then ids, uint16 of GPT-2 or uint32 of Llama 3
// (dev/data/data_common.py). Throws DataError.
TokenPart open_llmc(const std::filesystem::path& bin);
// The token that llm.c begins each document of such a file with: GPT-2's <|endoftext|>, Llama 3's <|begin_of_text|>.
int64_t llmc_delimiter(const TokenPart& part);

// The files, in this order, as one stream. `format`: kMegatron, kNanogpt or kLlmc.
TokenStream open_token_files(const std::vector<std::string>& files, spec::FileFormat format);

}  // namespace trainer::tokens
