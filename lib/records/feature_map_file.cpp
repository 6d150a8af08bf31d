// FeatureMap's files, and what a job may say over them.

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "records/columns.h"
#include "records/feature_map.h"
#include "records/fingerprint.h"
#include "spec/enums.h"
#include "spec/fault.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "trainer features";
constexpr int kVersion = 1;

// By its name.
template <class E>
E choice(const Json& json) {
  const std::string text = json;
  for (const auto& [value, name] : spec::names(E{})) {
    if (name == text) return value;
  }
  fail<DataError>("got \"{}\"", text);
}

std::string vocabulary_file(size_t table) {
  return fmt::format("vocabulary_{:03}.txt", table);
}

Json describe(const spec::Features& features, const FeatureInfo& info, bool hexadecimal) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["label"] = features.label;
  json["label_threshold"] = features.label_threshold ? Json(*features.label_threshold) : Json();
  json["group"] = features.group;
  json["dense"] = info.dense;
  json["dense_transform"] = spec::to_string(features.dense_transform);
  json["ids"] = spec::to_string(features.ids);
  json["hexadecimal"] = hexadecimal;
  json["min_count"] = features.min_count;
  json["separator"] = features.separator;
  json["weight_separator"] = features.weight_separator;
  json["out_of_range"] = spec::to_string(features.out_of_range);
  json["sparse"] = Json::array();
  for (const SparseFeature& feature : info.sparse) {
    json["sparse"].push_back(
        {{"name", feature.name}, {"table", info.tables[static_cast<size_t>(feature.table)].name}});
  }
  json["tables"] = Json::array();
  for (const TableInfo& table : info.tables)
    json["tables"].push_back({{"name", table.name}, {"rows", table.rows}});
  return json;
}

}  // namespace

uint64_t FeatureMap::fingerprint() const {
  Fingerprint print;
  print.add(describe(features_, info_, hexadecimal_).dump());
  for (const Vocabulary& vocabulary : vocabularies_) print.add(vocabulary.fingerprint());
  return print.value();
}

void FeatureMap::save(const fs::path& directory) const {
  Json json = describe(features_, info_, hexadecimal_);
  for (size_t t = 0; t < vocabularies_.size(); ++t) {
    json["tables"][t]["vocabulary"] = vocabulary_file(t);
    vocabularies_[t].save(directory / vocabulary_file(t));
  }
  json["fingerprint"] = fmt::format("{:016x}", fingerprint());
  write_file_atomic(directory / kFeaturesFile, json.dump(2) + "\n");
}

FeatureMap FeatureMap::load(const fs::path& directory) {
  const fs::path file = directory / kFeaturesFile;
  FeatureMap map;
  std::string said;
  try {
    const Json json = Json::parse(read_file(file));
    if (json.value("format", "") != kFormat)
      fail<DataError>("{}: is not the features of records", file.string());
    if (json.at("version") != kVersion) {
      fail<DataError>("{}: version {}, expected {}", file.string(), json.at("version").dump(), kVersion);
    }
    spec::Features& features = map.features_;
    FeatureInfo& info = map.info_;
    features.label = json.at("label");
    if (const Json& threshold = json.at("label_threshold"); !threshold.is_null())
      features.label_threshold = threshold;
    features.group = json.at("group");
    features.dense = info.dense = json.at("dense").get<std::vector<std::string>>();
    features.dense_transform = choice<spec::DenseTransform>(json.at("dense_transform"));
    features.ids = choice<spec::IdMapping>(json.at("ids"));
    map.hexadecimal_ = json.at("hexadecimal");
    features.min_count = json.at("min_count");
    features.separator = json.at("separator");
    features.weight_separator = json.at("weight_separator");
    features.out_of_range = choice<spec::OutOfRange>(json.at("out_of_range"));
    info.multi_hot = !features.separator.empty() || !features.weight_separator.empty();
    info.weighted = !features.weight_separator.empty();
    info.groups = !features.group.empty();
    for (const Json& table : json.at("tables")) {
      info.tables.push_back({table.at("name"), table.at("rows")});
      if (info.tables.back().rows < 1) {
        fail<DataError>("{}: table {} has {} rows; expected 1 or more", file.string(),
                        info.tables.back().name, info.tables.back().rows);
      }
      if (features.ids != spec::IdMapping::kVocabulary) continue;
      map.vocabularies_.push_back(
          Vocabulary::load(directory / table.at("vocabulary").get<std::string>(), info.tables.back().rows));
    }
    for (const Json& feature : json.at("sparse")) {
      const std::string name = feature.at("table");
      const auto found = std::find_if(info.tables.begin(), info.tables.end(),
                                      [&](const TableInfo& table) { return table.name == name; });
      if (found == info.tables.end()) fail<DataError>("{}: no table \"{}\"", file.string(), name);
      features.sparse.push_back(feature.at("name"));
      info.sparse.push_back({features.sparse.back(), found - info.tables.begin()});
    }
    said = json.at("fingerprint");
  } catch (const Json::exception& error) {
    fail<DataError>("{}: is not as this program writes it: {}", file.string(), error.what());
  }
  if (said != fmt::format("{:016x}", map.fingerprint())) {
    fail<DataError>(
        "{}: it or a vocabulary beside it is not what was saved: the fingerprint is {:016x}, expected {}",
        file.string(), map.fingerprint(), said);
  }
  return map;
}

void FeatureMap::check_said(const std::string& path, const spec::Features& features,
                            const spec::Recommender& model) const {
  const spec::Features unsaid;
  const auto check = [&](const char* key, const auto& said, const auto& none, const auto& mine) {
    if (said == none || said == mine) return;
    const auto shown = [](const auto& value) {
      if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
        return std::string(spec::to_string(value));
      } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<double>>) {
        return value ? fmt::format("{}", *value) : std::string("none");
      } else if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
        return fmt::format("{}", value);
      } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
        return spec::shown(value);
      } else {
        return fmt::format("[{}]", fmt::join(value, ", "));
      }
    };
    fail<SpecError>(
        "data.features.{}: got {}, but {} was prepared with {}; expected the same\nhint: leave it out, or "
        "prepare the data again",
        key, shown(said), path, shown(mine));
  };
  spec::Features resolved = features;
  if (!features.dense.empty() || !features.sparse.empty()) {
    Columns columns{path, {features_.label}};
    columns.names.insert(columns.names.end(), features_.dense.begin(), features_.dense.end());
    columns.names.insert(columns.names.end(), features_.sparse.begin(), features_.sparse.end());
    if (resolved.label.empty()) resolved.label = features_.label;
    resolved = resolve_columns(columns, resolved);
  }
  check("label", resolved.label, unsaid.label, features_.label);
  check("label_threshold", features.label_threshold, unsaid.label_threshold, features_.label_threshold);
  check("dense", resolved.dense, unsaid.dense, features_.dense);
  check("sparse", resolved.sparse, unsaid.sparse, features_.sparse);
  check("group", features.group, unsaid.group, features_.group);
  check("ids", features.ids, unsaid.ids, features_.ids);
  check("min_count", features.min_count, unsaid.min_count, features_.min_count);
  check("separator", features.separator, unsaid.separator, features_.separator);
  check("weight_separator", features.weight_separator, unsaid.weight_separator, features_.weight_separator);
  check("dense_transform", features.dense_transform, unsaid.dense_transform, features_.dense_transform);
  check("out_of_range", features.out_of_range, unsaid.out_of_range, features_.out_of_range);

  const auto name_of = [](const FeatureInfo& info, size_t f) {
    return info.tables[static_cast<size_t>(info.sparse[f].table)].name;
  };
  const FeatureInfo said = make_tables(features_, model);
  for (size_t f = 0; f < said.sparse.size(); ++f) {
    if (model.tables.empty() || name_of(said, f) == name_of(info_, f)) continue;
    fail<SpecError>(
        "model.recommender.tables: feature {} is in table {}, but {} was prepared with it in table {}; "
        "expected the same",
        said.sparse[f].name, name_of(said, f), path, name_of(info_, f));
  }
  for (size_t t = 0; t < info_.tables.size(); ++t) {
    const TableInfo& mine = info_.tables[t];
    const auto found = model.tables.find(mine.name);
    std::optional<int64_t> rows = model.rows;
    if (found != model.tables.end() && found->second.rows) rows = found->second.rows;
    const bool fits = !rows || (vocabularies_.empty() ? *rows == mine.rows : *rows >= mine.rows);
    if (fits) continue;
    fail<SpecError>(
        "model.recommender.tables.{}.rows: got {}, but {} was prepared with {} rows; expected {}\nhint: "
        "leave rows out, or "
        "prepare the data again",
        mine.name, *rows, path, mine.rows, vocabularies_.empty() ? "as many" : "as many or more");
  }
}

}  // namespace trainer::records
