#pragma once

#include <memory>

#include "data/token_windows.h"
#include "job/job.h"
#include "text/tokenizer.h"

namespace trainer::data {

// What a language model trains on: windows over the job's text or tokens.
struct LanguageData {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: files of tokens alone, and no tokenizer is known
  std::shared_ptr<const TokenWindows> train;
  std::shared_ptr<const TokenWindows> validation;  // null: none
};

// Throws DataError or SpecError with what is wrong with the files.
LanguageData open_language(const Job& job);

}  // namespace trainer::data
