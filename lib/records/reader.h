#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "records/columns.h"
#include "spec/job_spec.h"

namespace trainer::records {

// Fields of a row, as text, by wanted column; valid during the call. Empty: missing. `row` counts from the part's first.
using VisitRow = std::function<void(int64_t row, std::span<const std::string_view> fields)>;

// Rows of a file, in parts that several threads read at once. Const is thread-safe.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  virtual const Columns& columns() const = 0;
  const std::string& path() const { return columns().path; }
  virtual int64_t size_bytes() const = 0;
  // Whether ids of digits alone are hexadecimal numbers too, as in Criteo's own files.
  virtual bool hexadecimal_ids() const = 0;
  virtual int64_t num_parts() const = 0;
  // Visits the rows of a part in order, with the fields of these columns (numbers in columns()). Throws DataError naming
  // file and line, and what `visit` throws.
  virtual void read(int64_t part, std::span<const int64_t> columns, const VisitRow& visit) const = 0;
  // "<file>:<line>" of a row of a part, for messages: may take its time.
  virtual std::string where(int64_t part, int64_t row) const = 0;
};

// criteo: the columns label, I1 .. I13, C1 .. C26 between tabs, without a header; a file of 39 columns has no label.
// tsv, csv: with a header, or (header: false) columns named by their numbers. Auto: criteo for a .txt or .tsv of 39 or 40 columns
// whose first row is no header, else csv or tsv by the extension. Throws DataError, also when the file is empty or of another
// kind, and SpecError when there is none.
std::unique_ptr<RecordReader> open_reader(const spec::DataSource& source);

}  // namespace trainer::records
