#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/parallel_for.h"
#include "tokens/documents.h"

namespace trainer::tokens {
namespace {

class Jsonl final : public DocumentReader {
 public:
  Jsonl(const std::string& file, std::string field) : path_(file), file_(file), field_(std::move(field)) {
    if (file_.bytes().starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  DocumentBatch next(int64_t num_bytes, int64_t num_threads) override {
    const std::string_view bytes = file_.bytes();
    std::vector<std::string_view> lines;
    DocumentBatch batch;
    for (const size_t begin = at_; at_ < bytes.size() && at_ - begin < static_cast<size_t>(num_bytes);) {
      const size_t end = std::min(bytes.find('\n', at_), bytes.size());
      const std::string_view line = bytes.substr(at_, end - at_);
      at_ = std::min(end + 1, bytes.size());
      ++line_;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      lines.push_back(line);
      batch.places.push_back(line_);
    }
    // Only empty lines so far: they are not the end.
    if (lines.empty() && at_ < bytes.size()) return next(num_bytes, num_threads);
    batch.bytes_read = static_cast<int64_t>(at_);
    batch.texts.resize(lines.size());
    parallel_for(static_cast<int64_t>(lines.size()), 16, num_threads, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        batch.texts[i] = text(lines[i], batch.places[i]);
      }
    });
    return batch;
  }

 private:
  std::string text(std::string_view line, int64_t number) const {
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(line);
    } catch (const nlohmann::json::exception& error) {
      // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
      const std::string_view what = error.what();
      const size_t column = what.find("column ");
      fail<DataError>(
          "{}:{}: is no JSON: {}", path_, number,
          column == std::string_view::npos ? what.substr(what.find("] ") + 2) : what.substr(column));
    }
    if (!object.is_object()) {
      fail<DataError>("{}:{}: got {}; expected an object with a field \"{}\"", path_, number,
                      object.type_name(), field_);
    }
    const auto value = object.find(field_);
    if (value == object.end()) {
      std::vector<std::string> fields;
      for (const auto& [name, unused] : object.items()) fields.push_back(name);
      fail<DataError>("{}:{}: has no field \"{}\"; it has {}", path_, number, field_,
                      fmt::join(fields, ", "));
    }
    if (!value->is_string()) {
      fail<DataError>("{}:{}: {}: got {}; expected a string", path_, number, field_, value->type_name());
    }
    return std::move(value->get_ref<std::string&>());
  }

  std::string path_;
  MappedFile file_;
  std::string field_;
  size_t at_ = 0;
  int64_t line_ = 0;
};

}  // namespace

std::unique_ptr<DocumentReader> open_jsonl(const std::string& file, const std::string& field) {
  return std::make_unique<Jsonl>(file, field);
}

}  // namespace trainer::tokens
