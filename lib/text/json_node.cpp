#include "text/json_node.h"

#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace trainer::text {

using Json = nlohmann::json;

JsonNode JsonNode::at(const char* key) const {
  static const Json null;
  return {has(key) ? json[key] : null, where + (where.ends_with(": ") ? "" : ".") + key};
}

JsonNode JsonNode::at(size_t i) const {
  return {json[i], fmt::format("{}[{}]", where, i)};
}

void JsonNode::expected(const char* what) const {
  fail<DataError>("{}{}got {}, expected {}", where, where.ends_with(": ") ? "" : ": ",
                  json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80), what);
}

bool JsonNode::boolean() const {
  if (!json.is_boolean()) expected("true or false");
  return json.get<bool>();
}

int64_t JsonNode::integer() const {
  if (!json.is_number_integer()) expected("an integer");
  return json.get<int64_t>();
}

int32_t JsonNode::id() const {
  if (!json.is_number_integer() || json.get<int64_t>() < 0 || json.get<int64_t>() >= INT32_MAX) {
    expected("a token's id: an integer >= 0");
  }
  return json.get<int32_t>();
}

std::string JsonNode::string() const {
  if (!json.is_string()) expected("a string");
  return json.get<std::string>();
}

void JsonNode::read(const char* key, bool& value) const {
  if (has(key)) value = at(key).boolean();
}

void JsonNode::read(const char* key, std::string& value) const {
  if (has(key)) value = at(key).string();
}

void JsonNode::expect_object() const {
  if (!json.is_object()) expected("an object");
}

void JsonNode::expect_list() const {
  if (!json.is_array()) expected("a list");
}

void JsonNode::expect_type(const char* type, const char* why) const {
  expect_object();
  const std::string got = at("type").string();
  if (got != type) fail<DataError>("{}.type: got \"{}\", expected \"{}\"; {}", where, got, type, why);
}

Json parse_json(const std::filesystem::path& path) {
  return parse_json(path, read_file(path));
}

Json parse_json(const std::filesystem::path& path, const std::string& contents) {
  std::vector<std::unordered_set<std::string>> keys;
  const auto check = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail<DataError>("{}: duplicate key {}", path.string(), value.dump());
    }
    return true;
  };
  try {
    return Json::parse(contents, check);
  } catch (const Json::exception& e) {
    fail<DataError>("{}: malformed JSON: {}", path.string(), e.what());
  }
}

}  // namespace trainer::text
