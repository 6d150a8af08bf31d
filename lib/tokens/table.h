#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace trainer::tokens {

struct Column {
  std::string name;
  std::variant<std::vector<int64_t>, std::vector<float>, std::vector<std::string>> values;
};
using Table = std::vector<Column>;  // columns of equal length

// Rows to a file, part by part, in memory that does not grow with the file.
class TableWriter {
 public:
  virtual ~TableWriter() = default;
  // Every part has the columns of the first. Throws CheckpointError.
  virtual void write(const Table& rows) = 0;
  // After the last part; without it there is no file. Throws CheckpointError.
  virtual void finish() = 0;
};

// Parquet where `path` ends in .parquet, else CSV: a header, RFC 4180's quotes where they are needed, numbers that read back as
// they are. What is there is replaced as a whole when the table is finished, and until then stays. Throws CheckpointError, and
// DataError where there is no Arrow for Parquet.
std::unique_ptr<TableWriter> open_table(const std::filesystem::path& path);

}  // namespace trainer::tokens
