#include <cmath>
#include <nlohmann/json.hpp>

#include "spec/describe.h"
#include "spec/load.h"
#include "spec/visit.h"

namespace trainer::spec {
namespace {

using Json = nlohmann::ordered_json;

// A scalar that is not a string may also come from the environment.
Json or_variable(Json schema) {
  return {{"anyOf", {std::move(schema), {{"$ref", "#/$defs/variable"}}}}};
}

void bound(Json& schema, const Rule& rule) {
  if (std::isfinite(rule.min)) schema[rule.min_is_open ? "exclusiveMinimum" : "minimum"] = rule.min;
  if (std::isfinite(rule.max)) schema[rule.max_is_open ? "exclusiveMaximum" : "maximum"] = rule.max;
}

struct Schema {
  Json properties = Json::object();

  template <class T>
  void operator()(std::string_view key, T& field, const Rule& rule, std::string_view doc) {
    Json schema = {
        {"description", rule.unit.empty() ? std::string(doc) : fmt::format("{} [{}]", doc, rule.unit)}};
    schema.update(type_of(field, rule));
    if constexpr (!SectionField<T>) schema["default"] = value_of(field);
    properties[std::string(key)] = std::move(schema);
  }
  // Inherited values are no defaults of their own, but no value of DataSource's differs from them in a fresh
  // spec.
  template <class T>
  void inherit(T&, const T&) {}

  template <class T>
  static Json type_of(T& field, const Rule& rule) {
    if constexpr (SectionField<T>) {
      Schema section;
      describe(section, field);
      return {
          {"type", {"object", "null"}}, {"properties", section.properties}, {"additionalProperties", false}};
    } else if constexpr (OptionalField<T>) {
      typename T::value_type value{};
      Json schema = type_of(value, rule);
      schema["anyOf"].push_back({{"type", "null"}});
      return schema;
    } else if constexpr (ListField<T>) {
      typename T::value_type value{};
      return {{"type", "array"}, {"items", type_of(value, rule)}, {"uniqueItems", !rule.repeats}};
    } else if constexpr (SectionMapField<T>) {
      typename T::mapped_type value{};
      return {{"type", {"object", "null"}}, {"additionalProperties", type_of(value, rule)}};
    } else if constexpr (MapField<T>) {
      return {{"type", {"object", "null"}},
              {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
    } else if constexpr (EnumField<T>) {
      return or_variable({{"enum", choices<T>()}});
    } else if constexpr (std::is_same_v<T, bool>) {
      return or_variable({{"type", "boolean"}});
    } else if constexpr (NumberField<T>) {
      Json schema = {{"type", std::is_same_v<T, double> ? "number" : "integer"}};
      bound(schema, rule);
      return or_variable(std::move(schema));
    } else if (!rule.words.empty()) {
      Json number = {{"type", "integer"}};
      bound(number, rule);
      Json schema = or_variable({{"enum", rule.words}});
      schema["anyOf"].push_back(std::move(number));
      return schema;
    } else if (rule.pattern != nullptr) {
      Json schema = {{"type", {"string", "integer"}}, {"pattern", fmt::format("^({})$", rule.pattern)}};
      bound(schema, rule);
      return or_variable(std::move(schema));
    } else {
      return {{"type", rule.is_column ? Json{"string", "integer"} : Json("string")}};
    }
  }

  template <class T>
  static Json value_of(const T& field) {
    if constexpr (OptionalField<T>) {
      return field ? value_of(*field) : Json(nullptr);
    } else if constexpr (ListField<T>) {
      Json list = Json::array();
      for (const auto& value : field) list.push_back(value_of(value));
      return list;
    } else if constexpr (EnumField<T>) {
      return to_string(field);
    } else if constexpr (MapField<T>) {
      return Json::object();  // no map has entries by default
    } else {
      return field;
    }
  }
};

}  // namespace

std::string json_schema() {
  JobSpec spec;
  Schema schema;
  describe(schema, spec);
  const Json root = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "trainer job spec"},
      {"type", "object"},
      {"properties", schema.properties},
      {"additionalProperties", false},
      {"$defs",
       {{"variable",
         {{"description", "An environment variable, ${NAME} or ${NAME:-default}"},
          {"type", "string"},
          {"pattern", "\\$\\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}"}}}}},
  };
  return root.dump(2) + '\n';
}

}  // namespace trainer::spec
