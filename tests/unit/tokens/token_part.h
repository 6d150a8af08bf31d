#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokens/token_stream.h"

// A part of a stream that is no file.
inline trainer::tokens::TokenPart token_part(std::string name, std::vector<int32_t> ids,
                                             std::vector<int64_t> document_starts) {
  using namespace trainer::tokens;
  const auto kept = std::make_shared<const std::vector<int32_t>>(std::move(ids));
  return {std::move(name),
          kept,
          kept->data(),
          TokenType::kInt32,
          static_cast<int64_t>(kept->size()),
          std::make_shared<const KeptDocuments>(std::move(document_starts))};
}
