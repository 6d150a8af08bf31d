#include "data/delimited.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "spec/fault.h"

namespace trainer::data {
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

DelimitedFile::DelimitedFile(const std::filesystem::path& path, spec::FileFormat format,
                             spec::Quoting quoting, bool header)
    : path_(path.string()), file_(path) {
  const bool csv = is_csv(path, format);
  delimiter_ = csv ? ',' : '\t';
  quoted_ = quoting == spec::Quoting::kRfc4180 || (quoting == spec::Quoting::kAuto && csv);
  for (const std::string_view bom : kUtf16Bom) {
    if (bytes().starts_with(bom)) fail<DataError>("{}: is UTF-16, expected UTF-8", path_);
  }
  index_rows(bytes().starts_with(kUtf8Bom) ? kUtf8Bom.size() : 0, header);
}

void DelimitedFile::index_rows(size_t at, bool header) {
  size_t end = bytes().size();
  while (end > at && (bytes()[end - 1] == '\n' || bytes()[end - 1] == '\r')) --end;
  while (at < end) {
    const size_t start = at;
    size_t num_cells = 1;
    const size_t line_end = find(bytes(), '\n', at, end);
    if (!quoted_ || find(bytes(), '"', at, line_end) == line_end) {
      num_cells +=
          static_cast<size_t>(std::count(bytes().begin() + static_cast<ptrdiff_t>(at),
                                         bytes().begin() + static_cast<ptrdiff_t>(line_end), delimiter_));
      at = line_end;
    } else {
      for (at = skip_cell(at); at < end && bytes()[at] == delimiter_; at = skip_cell(at + 1)) ++num_cells;
    }
    rows_.push_back(start);
    if (columns_.empty()) {
      std::string scratch;
      columns_.resize(num_cells);
      for (size_t i = 0; i < num_cells; ++i) {
        columns_[i] = header ? std::string(cell(0, static_cast<int64_t>(i), scratch)) : std::to_string(i);
      }
      if (header) rows_.clear();
    } else if (num_cells != columns_.size()) {
      const bool has_quote = find(bytes(), '"', start, at) != at;
      fail<DataError>(
          "{}:{}: {} column{}, expected {} ({}){}", path_, line_of(start), num_cells,
          num_cells == 1 ? "" : "s", columns_.size(), fmt::join(columns_, ", "),
          !has_quote ? ""
          : quoted_  ? "\nhint: quoting is \"rfc4180\"; this row has quotes, if they are text try \"none\""
                     : "\nhint: quoting is \"none\"; this row has quotes, if they enclose cells try "
                       "\"rfc4180\"");
    }
    ++at;
  }
}

size_t DelimitedFile::skip_cell(size_t at) const {
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

std::string_view DelimitedFile::cell(int64_t row, int64_t column, std::string& scratch) const {
  const std::string_view text = bytes();
  size_t at = rows_[static_cast<size_t>(row)];
  for (int64_t i = 0; i < column; ++i) at = skip_cell(at) + 1;
  std::string_view raw = text.substr(at, skip_cell(at) - at);
  if (column + 1 == static_cast<int64_t>(columns_.size()) && raw.ends_with('\r')) raw.remove_suffix(1);
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

int64_t DelimitedFile::line_of(size_t offset) const {
  return 1 + std::count(bytes().begin(), bytes().begin() + static_cast<ptrdiff_t>(offset), '\n');
}

int64_t DelimitedFile::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found != columns_.end()) {
    const auto again = std::find(found + 1, columns_.end(), name);
    if (again != columns_.end()) {
      fail<DataError>("{}: two columns are named \"{}\"; give one by number: {} or {}", path_, name,
                      found - columns_.begin(), again - columns_.begin());
    }
    return found - columns_.begin();
  }
  size_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && stop == name.data() + name.size() && number < columns_.size()) {
    return static_cast<int64_t>(number);
  }
  if (columns_.empty()) {
    fail<DataError>("{}: the file is empty; expected a table with a column \"{}\"", path_, name);
  }
  fail<DataError>("{}: no column \"{}\"; columns: {}{}", path_, name, fmt::join(columns_, ", "),
                  spec::did_you_mean(name, {columns_.begin(), columns_.end()}));
}

}  // namespace trainer::data
