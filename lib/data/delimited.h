#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "spec/job_spec.h"

namespace trainer::data {

// Random access to the rows of a TSV or CSV file, memory-mapped. Construction scans the file once: it finds
// the rows and checks that all have the same number of columns. UTF-8 with or without BOM; lines end in LF or
// CRLF, the last one may have no end; empty lines at the end don't count. Thread-safe once built.
//
// Quoting "rfc4180": a cell that begins with a quote ends at the next single one, "" inside is a quote, and
// it may hold delimiters and line ends; a quote inside an unquoted cell is text. Quoting "none": quotes are
// text. Auto: format by the extension (.csv, else TSV); a CSV file is quoted, a TSV file is not.
class DelimitedFile {
 public:
  // Throws DataError naming file, line, what was got and what is expected.
  DelimitedFile(const std::filesystem::path& path, spec::FileFormat format, spec::Quoting quoting,
                bool header);

  const std::string& path() const { return path_; }
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  // Names from the header; without one, numbers from 0.
  const std::vector<std::string>& columns() const { return columns_; }
  // Index of a column given by its name or, when no column has that name, its number from 0. Throws DataError
  // that lists the columns there are.
  int64_t column(std::string_view name) const;

  // Cell as text; it points into the file, or into `scratch` when quotes had to be undone.
  std::string_view cell(int64_t row, int64_t column, std::string& scratch) const;
  // Line in the file that a row starts on, from 1. Counts lines from the start: for messages.
  int64_t line(int64_t row) const { return line_of(rows_[static_cast<size_t>(row)]); }
  std::string_view bytes() const { return file_.bytes(); }

 private:
  size_t skip_cell(
      size_t at) const;  // end of the cell that starts at `at`: a delimiter, line end or the file's end
  int64_t line_of(size_t offset) const;
  void index_rows(size_t at, bool header);

  std::string path_;
  MappedFile file_;
  char delimiter_;
  bool quoted_;
  std::vector<std::string> columns_;
  std::vector<uint64_t> rows_;  // where each row starts
};

}  // namespace trainer::data
