#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace trainer::text {

// A JSON value that knows where it stands, for messages: "tokenizer.json: " is a whole file, then
// "model.vocab". Every accessor throws DataError when the value is not of its type.
struct JsonNode {
  const nlohmann::json& json;
  std::string where;

  // null counts as absent.
  bool has(const char* key) const { return json.is_object() && json.contains(key) && !json[key].is_null(); }
  JsonNode at(const char* key) const;
  JsonNode at(size_t i) const;  // of a list
  [[noreturn]] void expected(const char* what) const;
  bool boolean() const;
  int64_t integer() const;
  int32_t id() const;  // of a token: 0 <= id < 2^31 - 1
  std::string string() const;
  // Sets `value` when the key is there.
  void read(const char* key, bool& value) const;
  void read(const char* key, std::string& value) const;
  void expect_object() const;
  void expect_list() const;
  // Refuses components that are not built in; `why` says what is.
  void expect_type(const char* type, const char* why) const;
};

// Parses a file. Throws DataError naming it, also when a key is given twice in an object (JSON would silently
// keep the last).
nlohmann::json parse_json(const std::filesystem::path& path);
nlohmann::json parse_json(const std::filesystem::path& path, const std::string& contents);

}  // namespace trainer::text
