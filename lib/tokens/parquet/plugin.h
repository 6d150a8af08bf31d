#pragma once

#include <memory>
#include <string>

#include "tokens/documents.h"

// What libtrainer_parquet.so exports: kOpenParquet. It alone is linked to Arrow.

namespace trainer::tokens {

constexpr char kParquetLibrary[] = "libtrainer_parquet.so";
constexpr char kOpenParquet[] = "trainer_open_parquet";
using OpenParquet = void(const std::string& file, const std::string& field,
                         std::unique_ptr<DocumentReader>& reader);

}  // namespace trainer::tokens
