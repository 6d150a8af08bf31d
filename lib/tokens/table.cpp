#include "tokens/table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/sync.h"
#include "tokens/parquet/plugin.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

void append(std::string& text, int64_t value) {
  fmt::format_to(std::back_inserter(text), "{}", value);
}
void append(std::string& text, float value) {
  fmt::format_to(std::back_inserter(text), "{}", value);  // the shortest that reads back equal
}
void append(std::string& text, const std::string& value) {
  if (value.find_first_of(",\"\r\n") == std::string::npos) {
    text += value;
    return;
  }
  text += '"';
  for (const char c : value) text.append(c == '"' ? 2 : 1, c);
  text += '"';
}

class Csv final : public TableWriter {
 public:
  explicit Csv(fs::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_.is_open())
      fail<CheckpointError>("{}: cannot create: {}", path_.string(), std::strerror(errno));
  }

  void write(const Table& rows) override {
    std::string text;
    const auto line = [&](const auto& add_cell) {
      for (size_t c = 0; c < rows.size(); ++c) {
        if (c > 0) text += ',';
        add_cell(rows[c]);
      }
      text += '\n';
    };
    if (!std::exchange(has_header_, true)) line([&](const Column& column) { append(text, column.name); });
    const size_t n = std::visit([](const auto& values) { return values.size(); }, rows.at(0).values);
    for (size_t i = 0; i < n; ++i) {
      line([&](const Column& column) {
        std::visit([&](const auto& values) { append(text, values[i]); }, column.values);
      });
    }
    if (!write_all(file_.get(), text)) {
      fail<CheckpointError>("{}: cannot write: {}", path_.string(), std::strerror(errno));
    }
  }
  void finish() override { file_ = {}; }

 private:
  fs::path path_;
  Descriptor file_;
  bool has_header_ = false;
};

// Beside its place until it is finished.
class Atomic final : public TableWriter {
 public:
  explicit Atomic(fs::path path)
      : path_(std::move(path)), temporary_(path_.string() + fmt::format(".tmp{}", ::getpid())) {
    if (path_.extension() == ".parquet") {
      table_ = create_parquet(temporary_.string());
    } else {
      table_ = std::make_unique<Csv>(temporary_);
    }
  }
  ~Atomic() override {
    if (table_ == nullptr) return;
    table_.reset();
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }
  void write(const Table& rows) override { table_->write(rows); }
  void finish() override {
    table_->finish();
    sync_file(temporary_);
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) fail<CheckpointError>("{}: cannot rename into place: {}", path_.string(), error.message());
    table_.reset();
  }

 private:
  fs::path path_, temporary_;
  std::unique_ptr<TableWriter> table_;  // null: finished
};

}  // namespace

std::unique_ptr<TableWriter> open_table(const fs::path& path) {
  return std::make_unique<Atomic>(path);
}

}  // namespace trainer::tokens
