#pragma once

#include <memory>
#include <string>

#include "tokens/documents.h"
#include "tokens/table.h"

// What libtrainer_parquet.so exports. It alone is linked to Arrow.

namespace trainer::tokens {

constexpr char kParquetLibrary[] = "libtrainer_parquet.so";
constexpr char kOpenParquet[] = "trainer_open_parquet";
using OpenParquet = void(const std::string& file, const std::string& field,
                         std::unique_ptr<DocumentReader>& reader);
constexpr char kCreateParquet[] = "trainer_create_parquet";
using CreateParquet = void(const std::string& file, std::unique_ptr<TableWriter>& table);

// A new file, by the plugin, which is loaded now. Throws DataError where there is no Arrow, and CheckpointError.
std::unique_ptr<TableWriter> create_parquet(const std::string& file);

}  // namespace trainer::tokens
