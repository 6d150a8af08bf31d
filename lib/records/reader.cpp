#include "records/reader.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/math.h"
#include "records/delimited.h"
#include "spec/enums.h"
#include "spec/fault.h"

namespace trainer::records {
namespace {

using spec::FileFormat;

constexpr int64_t kPartBytes = int64_t{1} << 20;
constexpr size_t kCriteoDense = 13, kCriteoSparse = 26;

std::vector<std::string> criteo_columns(bool label) {
  std::vector<std::string> columns;
  if (label) columns.emplace_back("label");
  for (size_t i = 1; i <= kCriteoDense; ++i) columns.push_back(fmt::format("I{}", i));
  for (size_t i = 1; i <= kCriteoSparse; ++i) columns.push_back(fmt::format("C{}", i));
  return columns;
}

class DelimitedReader final : public RecordReader {
 public:
  // `columns` empty: the header's, or numbers.
  DelimitedReader(DelimitedText text, bool header, std::vector<std::string> columns)
      : text_(std::move(text)),
        columns_{text_.path(), std::move(columns)},
        is_criteo_(!columns_.names.empty()) {
    size_t at = text_.begin();
    if (columns_.names.empty()) columns_.names = read_columns(text_, header, at);
    if (at >= text_.end()) fail<DataError>("{}: has no rows", text_.path());
    find_parts(at);
  }

  const Columns& columns() const override { return columns_; }
  int64_t size_bytes() const override { return static_cast<int64_t>(text_.bytes().size()); }
  bool hexadecimal_ids() const override { return is_criteo_; }
  int64_t num_parts() const override { return static_cast<int64_t>(parts_.size()) - 1; }

  void read(int64_t part, std::span<const int64_t> columns, const VisitRow& visit) const override {
    std::vector<std::string_view> cells, fields(columns.size());
    std::string scratch;
    const size_t end = parts_[static_cast<size_t>(part) + 1];
    int64_t row = 0;
    for (size_t at = parts_[static_cast<size_t>(part)]; at < end; ++row) {
      const size_t next = text_.split(at, cells, scratch);
      if (cells.size() != columns_.names.size()) text_.fail_count(at, cells.size(), columns_.names);
      for (size_t i = 0; i < fields.size(); ++i) fields[i] = cells[static_cast<size_t>(columns[i])];
      visit(row, fields);
      at = next;
    }
  }

  std::string where(int64_t part, int64_t row) const override {
    size_t at = parts_[static_cast<size_t>(part)], ignored = 0;
    for (; row > 0; --row) at = text_.skip_row(at, ignored);
    return fmt::format("{}:{}", text_.path(), text_.line_of(at));
  }

 private:
  // Where parts begin, each at a row. A line end may stand between quotes: where there are any, rows are followed.
  void find_parts(size_t at) {
    const auto bytes = static_cast<size_t>(kPartBytes);
    while (at < text_.end()) {
      parts_.push_back(at);
      const size_t near = std::min(at + bytes, text_.end());
      const size_t next = near < text_.end() ? text_.next_line(near) : near;
      if (next < text_.end() && text_.quoted() &&
          std::memchr(text_.bytes().data() + at, '"', next - at) != nullptr) {
        for (size_t ignored = 0; at < near;) at = text_.skip_row(at, ignored);
      } else {
        at = next;
      }
    }
    parts_.push_back(text_.end());
  }

  DelimitedText text_;
  Columns columns_;
  bool is_criteo_;
  std::vector<size_t> parts_;  // and the end
};

// The cells of the first row, as they are written.
std::vector<std::string> first_row(const DelimitedText& text) {
  size_t at = text.begin();
  return read_columns(text, true, at);
}

bool is_criteo(const std::vector<std::string>& row) {
  const size_t with_label = 1 + kCriteoDense + kCriteoSparse;
  if (row.size() != with_label && row.size() + 1 != with_label) return false;
  // A header's first cell would be a name.
  return row[0].find_first_not_of("-0123456789") == std::string::npos;
}

}  // namespace

std::unique_ptr<RecordReader> open_reader(const spec::DataSource& source) {
  const bool known = source.format == FileFormat::kAuto || source.format == FileFormat::kTsv ||
                     source.format == FileFormat::kCsv || source.format == FileFormat::kCriteo;
  if (!known) {
    fail<DataError>("{}: got format {}; expected criteo, tsv, csv or records", source.path,
                    spec::to_string(source.format));
  }
  if (source.format == FileFormat::kCsv || source.format == FileFormat::kTsv) {
    return std::make_unique<DelimitedReader>(DelimitedText(source.path, source.format, source.quoting),
                                             source.header, std::vector<std::string>());
  }
  const bool is_csv = source.format == FileFormat::kAuto && source.path.ends_with(".csv");
  if (!is_csv) {
    DelimitedText text(source.path, FileFormat::kTsv, spec::Quoting::kNone);
    const std::vector<std::string> row = first_row(text);
    if (row.empty()) fail<DataError>("{}: has no rows", source.path);
    if (is_criteo(row)) {
      const bool label = row.size() == 1 + kCriteoDense + kCriteoSparse;
      return std::make_unique<DelimitedReader>(std::move(text), false, criteo_columns(label));
    }
    if (source.format == FileFormat::kCriteo) {
      fail<DataError>(
          "{}:1: {} column{} between tabs that begin with {}; expected 40 (label, I1 to I13, C1 to C26) or "
          "39 "
          "without the label, and no header\nhint: data.train.format is criteo; a file with a header is tsv "
          "or csv",
          source.path, row.size(), row.size() == 1 ? "" : "s", spec::shown(row[0]));
    }
  }
  return std::make_unique<DelimitedReader>(DelimitedText(source.path, source.format, source.quoting),
                                           source.header, std::vector<std::string>());
}

}  // namespace trainer::records
