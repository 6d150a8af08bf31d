#include "records/delimited.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "spec/fault.h"

namespace trainer::records {
namespace {

constexpr std::string_view kUtf8Bom = "\xEF\xBB\xBF";
constexpr std::string_view kUtf16Bom[] = {"\xFF\xFE", "\xFE\xFF"};

bool is_csv(const std::filesystem::path& path, spec::FileFormat format) {
  return format == spec::FileFormat::kCsv ||
         (format == spec::FileFormat::kAuto && path.extension() == ".csv");
}

// Position of `c` in [at, end), or `end`.
size_t find(std::string_view bytes, char c, size_t at, size_t end) {
  if (at >= end) return end;
  const void* found = std::memchr(bytes.data() + at, c, end - at);
  return found == nullptr ? end : static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

}  // namespace

DelimitedText::DelimitedText(const std::filesystem::path& path, spec::FileFormat format,
                             spec::Quoting quoting)
    : path_(path.string()), file_(path) {
  const bool csv = is_csv(path, format);
  delimiter_ = csv ? ',' : '\t';
  quoted_ = quoting == spec::Quoting::kRfc4180 || (quoting == spec::Quoting::kAuto && csv);
  for (const std::string_view bom : kUtf16Bom) {
    if (bytes().starts_with(bom)) fail<DataError>("{}: is UTF-16, expected UTF-8", path_);
  }
  begin_ = bytes().starts_with(kUtf8Bom) ? kUtf8Bom.size() : 0;
  end_ = bytes().size();
  while (end_ > begin_ && (bytes()[end_ - 1] == '\n' || bytes()[end_ - 1] == '\r')) --end_;
}

bool DelimitedText::has_quote(size_t at, size_t line_end) const {
  return quoted_ && find(bytes(), '"', at, line_end) != line_end;
}

size_t DelimitedText::skip_row(size_t at, size_t& num_cells) const {
  const size_t line_end = find(bytes(), '\n', at, end_);
  num_cells = 1;
  if (!has_quote(at, line_end)) {
    num_cells += static_cast<size_t>(std::count(bytes().data() + at, bytes().data() + line_end, delimiter_));
    return line_end + 1;
  }
  for (at = skip_cell(at); at < end_ && bytes()[at] == delimiter_; at = skip_cell(at + 1)) ++num_cells;
  return at + 1;
}

size_t DelimitedText::split(size_t at, std::vector<std::string_view>& cells, std::string& scratch) const {
  cells.clear();
  const char* const data = bytes().data();
  const size_t line_end = find(bytes(), '\n', at, end_);
  if (!has_quote(at, line_end)) {
    const bool cr = line_end > at && line_end < end_ && data[line_end - 1] == '\r';
    const char *start = data + at, *const stop = data + line_end - (cr ? 1 : 0);
    for (const char* c = start; c < stop; ++c) {
      if (*c != delimiter_) continue;
      cells.emplace_back(start, static_cast<size_t>(c - start));
      start = c + 1;
    }
    cells.emplace_back(start, static_cast<size_t>(stop - start));
    return line_end + 1;
  }
  // What cells with doubled quotes become, one behind the other: a cell is no longer than it was.
  size_t row_end = at, num_cells = 0;
  row_end = skip_row(at, num_cells) - 1;
  scratch.clear();
  scratch.reserve(row_end - at);
  std::string undone;
  for (;;) {
    const size_t stop = skip_cell(at);
    std::string_view text = unquoted(at, stop, stop >= row_end, undone);
    if (!text.empty() && text.data() == undone.data()) {
      scratch += text;
      text = std::string_view(scratch).substr(scratch.size() - text.size());
    }
    cells.push_back(text);
    if (stop >= row_end) return row_end + 1;
    at = stop + 1;
  }
}

size_t DelimitedText::skip_cell(size_t at) const {
  const std::string_view text = bytes();
  const size_t end = text.size();
  if (!quoted_ || at >= end || text[at] != '"') {
    const auto* stop = std::find_if(text.begin() + std::min(at, end), text.end(),
                                    [this](char c) { return c == delimiter_ || c == '\n'; });
    return static_cast<size_t>(stop - text.begin());
  }
  constexpr const char* kHint =
      "\nhint: quoting is \"rfc4180\"; if quotes are text in this file try \"none\"";
  size_t close = at + 1;
  for (;;) {
    close = find(text, '"', close, end);
    if (close == end) {
      fail<DataError>("{}:{}: the quote that opens a cell here is never closed{}", path_, line_of(at), kHint);
    }
    if (close + 1 == end || text[close + 1] != '"') break;
    close += 2;
  }
  size_t after = close + 1;
  if (after < end && text[after] == '\r') ++after;
  const bool line_end = after == end || text[after] == '\n';
  if (!line_end && (text[close + 1] != delimiter_)) {
    fail<DataError>(
        "{}:{}: text after a closing quote, expected a delimiter or the line's end; the cell opens in line "
        "{}{}",
        path_, line_of(close), line_of(at), kHint);
  }
  return line_end ? after : close + 1;
}

std::string_view DelimitedText::unquoted(size_t at, size_t cell_end, bool last, std::string& scratch) const {
  std::string_view raw = bytes().substr(at, cell_end - at);
  if (last && raw.ends_with('\r')) raw.remove_suffix(1);
  if (!quoted_ || !raw.starts_with('"')) return raw;
  raw = raw.substr(1, raw.size() - 2);
  if (raw.find('"') == raw.npos) return raw;
  scratch.clear();
  for (size_t i = 0; i < raw.size(); ++i) {
    scratch += raw[i];
    if (raw[i] == '"') ++i;  // a doubled quote
  }
  return scratch;
}

int64_t DelimitedText::line_of(size_t offset) const {
  return 1 + std::count(bytes().begin(), bytes().begin() + static_cast<ptrdiff_t>(offset), '\n');
}

size_t DelimitedText::next_line(size_t offset) const {
  if (offset <= begin_) return begin_;
  return std::min(find(bytes(), '\n', offset - 1, end_) + 1, bytes().size());
}

void DelimitedText::fail_count(size_t at, size_t num_cells, const std::vector<std::string>& columns) const {
  size_t ignored = 0;
  const size_t row_end = std::min(skip_row(at, ignored), end_);
  fail<DataError>("{}:{}: {} column{}, expected {} ({}){}", path_, line_of(at), num_cells,
                  num_cells == 1 ? "" : "s", columns.size(), fmt::join(columns, ", "),
                  find(bytes(), '"', at, row_end) == row_end ? ""
                  : quoted_
                      ? "\nhint: quoting is \"rfc4180\"; this row has quotes, if they are text try \"none\""
                      : "\nhint: quoting is \"none\"; this row has quotes, if they enclose cells try "
                        "\"rfc4180\"");
}

int64_t DelimitedText::find_column(const std::vector<std::string>& columns, std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found != columns.end()) {
    const auto again = std::find(found + 1, columns.end(), name);
    if (again != columns.end()) {
      fail<DataError>("{}: two columns are named \"{}\"; give one by number: {} or {}", path_, name,
                      found - columns.begin(), again - columns.begin());
    }
    return found - columns.begin();
  }
  size_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && stop == name.data() + name.size() && number < columns.size()) {
    return static_cast<int64_t>(number);
  }
  if (columns.empty()) {
    fail<DataError>("{}: the file is empty; expected a table with a column \"{}\"", path_, name);
  }
  fail<DataError>("{}: no column \"{}\"; columns: {}{}", path_, name, fmt::join(columns, ", "),
                  spec::did_you_mean(name, {columns.begin(), columns.end()}));
}

std::vector<std::string> read_columns(const DelimitedText& text, bool header, size_t& at) {
  std::vector<std::string> columns;
  if (at >= text.end()) return columns;
  std::vector<std::string_view> cells;
  std::string scratch;
  const size_t next = text.split(at, cells, scratch);
  for (size_t i = 0; i < cells.size(); ++i)
    columns.push_back(header ? std::string(cells[i]) : std::to_string(i));
  if (header) at = next;
  return columns;
}

DelimitedFile::DelimitedFile(const std::filesystem::path& path, spec::FileFormat format,
                             spec::Quoting quoting, bool header)
    : text_(path, format, quoting) {
  size_t at = text_.begin();
  columns_ = read_columns(text_, header, at);
  while (at < text_.end()) {
    rows_.push_back(at);
    size_t num_cells = 0;
    at = text_.skip_row(at, num_cells);
    if (num_cells != columns_.size()) text_.fail_count(rows_.back(), num_cells, columns_);
  }
}

std::string_view DelimitedFile::cell(int64_t row, int64_t column, std::string& scratch) const {
  size_t at = rows_[static_cast<size_t>(row)];
  for (int64_t i = 0; i < column; ++i) at = text_.skip_cell(at) + 1;
  const bool last = column + 1 == static_cast<int64_t>(columns_.size());
  return text_.unquoted(at, text_.skip_cell(at), last, scratch);
}

}  // namespace trainer::records
