#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trainer::tokens {

// Some consecutive documents of a file.
struct DocumentBatch {
  std::vector<std::string> texts;
  std::vector<int64_t> places;  // of each: its line, or row, from 1
  int64_t bytes_read = 0;       // of the file, with these: for progress
};

// The documents of one file, in order.
class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next ones, of about `num_bytes`, on `num_threads` threads; none: the file is at its end. Throws DataError that
  // names file and line.
  virtual DocumentBatch next(int64_t num_bytes, int64_t num_threads) = 0;
};

// JSON lines: the string `field` of the object on each line; empty lines don't count.
std::unique_ptr<DocumentReader> open_jsonl(const std::string& file, const std::string& field);
// Parquet: the strings of column `field`. By Arrow C++ of the pyarrow package, which is found and loaded here.
std::unique_ptr<DocumentReader> open_parquet(const std::string& file, const std::string& field);

}  // namespace trainer::tokens
