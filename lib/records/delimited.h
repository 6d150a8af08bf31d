#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "spec/job_spec.h"

namespace trainer::records {

// The text of a TSV or CSV file, memory-mapped. UTF-8 with or without BOM; lines end in LF or CRLF, the last one may
// have no end; empty lines at the end don't count. Thread-safe once built.
//
// Quoting "rfc4180": a cell that begins with a quote ends at the next single one, "" inside is a quote, and
// it may hold delimiters and line ends; a quote inside an unquoted cell is text. Quoting "none": quotes are
// text. Auto: format by the extension (.csv, else TSV); a CSV file is quoted, a TSV file is not.
class DelimitedText {
 public:
  // Throws DataError when it is UTF-16.
  DelimitedText(const std::filesystem::path& path, spec::FileFormat format, spec::Quoting quoting);

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return file_.bytes(); }
  // Where the first row begins, and where the last one ends without its line end.
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }

  // Splits the row that begins at `at` into its cells, which point into the file, or into `scratch` where quotes had to
  // be undone. Returns where the next row begins, end() or more behind the last. Throws DataError naming file and line.
  size_t split(size_t at, std::vector<std::string_view>& cells, std::string& scratch) const;
  // Where the next row begins, and the number of cells of this one. Throws as split().
  size_t skip_row(size_t at, size_t& num_cells) const;
  // End of the cell that starts at `at`: a delimiter, line end or the file's end. Throws as split().
  size_t skip_cell(size_t at) const;
  // The text of the cell [at, cell_end).
  std::string_view unquoted(size_t at, size_t cell_end, bool last, std::string& scratch) const;
  // Line in the file, from 1. Counts lines from the start: for messages.
  int64_t line_of(size_t offset) const;
  // The first row that begins at `offset` or behind it, given that no cell of `offset`'s line has a quote around it, or that
  // quotes are text.
  size_t next_line(size_t offset) const;
  bool quoted() const { return quoted_; }
  // Throws the DataError of a row whose number of cells is not that of `columns`.
  [[noreturn]] void fail_count(size_t at, size_t num_cells, const std::vector<std::string>& columns) const;
  // Throws when there is no or more than one such column: it lists those there are.
  int64_t find_column(const std::vector<std::string>& columns, std::string_view name) const;

 private:
  bool has_quote(size_t at, size_t line_end) const;

  std::string path_;
  MappedFile file_;
  char delimiter_;
  bool quoted_;
  size_t begin_ = 0, end_ = 0;
};

// Random access to the rows of a TSV or CSV file. Construction scans the file once: it finds the rows and checks that all
// have the same number of columns. Thread-safe once built.
class DelimitedFile {
 public:
  // Throws DataError naming file, line, what was got and what is expected.
  DelimitedFile(const std::filesystem::path& path, spec::FileFormat format, spec::Quoting quoting,
                bool header);

  const std::string& path() const { return text_.path(); }
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  // Names from the header; without one, numbers from 0.
  const std::vector<std::string>& columns() const { return columns_; }
  // Index of a column given by its name or, when no column has that name, its number from 0. Throws DataError
  // that lists the columns there are.
  int64_t column(std::string_view name) const { return text_.find_column(columns_, name); }

  // Cell as text; it points into the file, or into `scratch` when quotes had to be undone.
  std::string_view cell(int64_t row, int64_t column, std::string& scratch) const;
  // Line in the file that a row starts on, from 1. Counts lines from the start: for messages.
  int64_t line(int64_t row) const { return text_.line_of(rows_[static_cast<size_t>(row)]); }
  std::string_view bytes() const { return text_.bytes(); }

 private:
  DelimitedText text_;
  std::vector<std::string> columns_;
  std::vector<uint64_t> rows_;  // where each row starts
};

// The names that a header gives columns, or numbers from 0 when `header` is false; `at` moves behind it.
std::vector<std::string> read_columns(const DelimitedText& text, bool header, size_t& at);

}  // namespace trainer::records
