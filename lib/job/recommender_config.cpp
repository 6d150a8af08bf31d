#include "job/recommender_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "job/config_reader.h"
#include "job/faults.h"
#include "spec/describe.h"
#include "spec/enums.h"

namespace trainer {
namespace {

using Json = ConfigReader::Json;
using records::FeatureInfo;
using spec::Architecture;

template <class E>
std::string choices() {
  std::string text;
  for (const auto& [choice, name] : spec::names(E{})) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// In config.json.
template <class E>
bool read_choice(const Json& object, const char* key, E& value) {
  if (!object.contains(key)) return false;
  for (const auto& [choice, name] : spec::names(E{})) {
    if (object[key] == name) return value = choice, true;
  }
  return false;
}

bool read_name(const Json& json, std::string& name) {
  if (!json.is_string()) return false;
  name = json;
  return !name.empty();
}

bool read_size(const Json& object, const char* key, double most, int64_t& value) {
  if (!object.contains(key) || !object[key].is_number_integer()) return false;
  if (object[key] < 1 || object[key] > most) return false;
  value = object[key];
  return true;
}

// A list of `key`, each element by `read(json, element)`.
template <class T, class Read>
void read_list(ConfigReader& reader, const char* key, std::vector<T>& list, const std::string& expected,
               const Read& read) {
  bool good = reader.present(key) && reader[key].is_array();
  if (good) {
    for (const Json& element : reader[key]) good = good && read(element, list.emplace_back());
  }
  if (!good) reader.fault(key, expected);
}

void read_widths(ConfigReader& reader, const char* key, std::vector<int64_t>& widths) {
  read_list(reader, key, widths, "a list of channels", [](const Json& json, int64_t& width) {
    if (!json.is_number_integer() || json < 1 || json > spec::kMillion) return false;
    width = json;
    return true;
  });
}

bool read_table(const Json& json, TableConfig& table) {
  return json.is_object() && json.contains("name") && read_name(json["name"], table.name) &&
         read_size(json, "rows", spec::kMostRows, table.rows) && read_size(json, "dim", 65537, table.dim) &&
         read_choice(json, "pooling", table.pooling) && read_choice(json, "dtype", table.dtype);
}

// Columns of features and features of tables.
void connect(RecommenderConfig& config) {
  int64_t column = 0;
  for (size_t f = 0; f < config.features.size(); ++f) {
    SparseFeature& feature = config.features[f];
    TableConfig& table = config.tables[static_cast<size_t>(feature.table)];
    table.features.push_back(static_cast<int64_t>(f));
    feature.column = column;
    column += table.dim;
  }
}

RecommenderConfig new_config(const Job& job, const FeatureInfo& info, JobFaults& faults) {
  const spec::Recommender& r = job.spec.model.recommender;
  RecommenderConfig config{.architecture = r.architecture, .dense = info.dense, .top_mlp = r.top_mlp};
  config.top_mlp.push_back(1);
  if (!config.has_first_order() && !info.dense.empty()) {
    config.bottom_mlp = r.bottom_mlp;
    config.bottom_mlp.push_back(r.embedding_dim);
  }
  if (r.architecture == Architecture::kDcnv2) {
    config.cross_layers = r.cross_layers;
    config.cross_rank = r.cross_rank;
  }
  for (const records::TableInfo& table : info.tables) {
    const auto found = r.tables.find(table.name);
    const spec::EmbeddingTable said = found != r.tables.end() ? found->second : spec::EmbeddingTable();
    config.tables.push_back({.name = table.name,
                             .rows = table.rows,
                             .dim = said.dim.value_or(r.embedding_dim) + (config.has_first_order() ? 1 : 0),
                             .pooling = said.pooling.value_or(r.pooling),
                             .dtype = said.dtype.value_or(r.table_dtype)});
  }
  for (const records::SparseFeature& feature : info.sparse) {
    config.features.push_back({.name = feature.name, .table = feature.table});
  }
  for (const auto& [name, table] : r.tables) {
    if (std::any_of(info.tables.begin(), info.tables.end(), [&](const auto& t) { return t.name == name; })) {
      continue;
    }
    const std::string key = "model.recommender.tables." + name;
    faults.add(key, "is looked up by no feature; expected one of data.features.sparse{}",
               table.features.empty() ? ", or its features" : "");
  }
  connect(config);
  return config;
}

// The saved model's own rows stand, those of its vocabulary.
void check_features(const RecommenderConfig& config, const FeatureInfo& info, const std::string& where,
                    JobFaults& faults) {
  const auto differ = [&](const char* key, const std::vector<std::string>& got,
                          const std::vector<std::string>& expected) {
    if (got == expected) return;
    faults.add(key, "got [{}], but {} is of [{}]; expected the same", fmt::join(got, ", "), where,
               fmt::join(expected, ", "));
  };
  std::vector<std::string> got, expected;
  for (const auto& feature : info.sparse) {
    got.push_back(feature.name + " in " + info.tables.at(static_cast<size_t>(feature.table)).name);
  }
  for (const SparseFeature& feature : config.features) {
    expected.push_back(feature.name + " in " + config.tables.at(static_cast<size_t>(feature.table)).name);
  }
  differ("data.features.dense", info.dense, config.dense);
  differ("data.features.sparse", got, expected);
  if (got != expected) return;
  for (const records::TableInfo& table : info.tables) {
    const auto same = std::find_if(config.tables.begin(), config.tables.end(),
                                   [&](const TableConfig& t) { return t.name == table.name; });
    if (same != config.tables.end() && table.rows > same->rows) {
      faults.add("data.features", "have {} rows in table {}; {} has {}", table.rows, table.name, where,
                 same->rows);
    }
  }
}

}  // namespace

RecommenderConfig RecommenderConfig::load(const std::filesystem::path& directory) {
  RecommenderConfig c;
  ConfigReader reader(directory / "config.json");
  reader.only("model_type", "recommender");
  if (!reader.present("model_type")) reader.fault("model_type", "\"recommender\"");
  if (!reader.present("architecture") ||
      !read_choice(Json{{"a", reader["architecture"]}}, "a", c.architecture)) {
    reader.fault("architecture", "one of " + choices<Architecture>());
  }
  read_list(reader, "dense_features", c.dense, "a list of names", read_name);
  read_list(reader, "tables", c.tables, "a list of tables with name, rows, dim, pooling and dtype",
            read_table);
  read_list(reader, "sparse_features", c.features, "a list of features with name and table",
            [&](const Json& json, SparseFeature& feature) {
              if (!json.is_object() || !json.contains("name") || !json.contains("table")) return false;
              const auto table = std::find_if(c.tables.begin(), c.tables.end(),
                                              [&](const TableConfig& t) { return json["table"] == t.name; });
              feature.table = table - c.tables.begin();
              return table != c.tables.end() && read_name(json["name"], feature.name);
            });
  read_widths(reader, "bottom_mlp", c.bottom_mlp);
  read_widths(reader, "top_mlp", c.top_mlp);
  if (c.top_mlp.empty() || c.top_mlp.back() != 1) reader.fault("top_mlp", "a list that ends with 1");
  reader.integer("cross_layers", c.cross_layers, 0, 1000);
  reader.integer("cross_rank", c.cross_rank, 0, static_cast<int64_t>(spec::kMillion));
  reader.number("dropout", c.dropout, 1);
  reader.throw_if_any("of a recommender");
  connect(c);
  return c;
}

std::string RecommenderConfig::to_json() const {
  Json out{{"model_type", "recommender"},
           {"architecture", spec::to_string(architecture)},
           {"dense_features", dense}};
  out["sparse_features"] = Json::array();
  for (const SparseFeature& f : features) {
    out["sparse_features"].push_back(
        {{"name", f.name}, {"table", tables.at(static_cast<size_t>(f.table)).name}});
  }
  out["tables"] = Json::array();
  for (const TableConfig& t : tables) {
    out["tables"].push_back({{"name", t.name},
                             {"rows", t.rows},
                             {"dim", t.dim},
                             {"pooling", spec::to_string(t.pooling)},
                             {"dtype", spec::to_string(t.dtype)}});
  }
  out["bottom_mlp"] = bottom_mlp;
  out["top_mlp"] = top_mlp;
  if (architecture == Architecture::kDcnv2)
    out["cross_layers"] = cross_layers, out["cross_rank"] = cross_rank;
  out["dropout"] = dropout;
  return out.dump(2) + "\n";
}

RecommenderConfig load_recommender_config(const Job& job, const FeatureInfo& info, JobFaults& faults) {
  const spec::Model& model = job.spec.model;
  const spec::Recommender& r = model.recommender;
  RecommenderConfig config;
  if (model.pretrained.empty()) {
    config = new_config(job, info, faults);
  } else {
    try {
      config = RecommenderConfig::load(model.pretrained);
    } catch (const SpecError& error) {
      faults.add("model.pretrained", "{}", error.what());
      return config;
    }
    check_features(config, info, model.pretrained, faults);
  }
  for (TableConfig& table : config.tables) {
    const auto said = r.tables.find(table.name);
    table.sharding =
        (said != r.tables.end() ? said->second.sharding : std::nullopt).value_or(job.spec.parallel.embedding);
  }
  config.dropout = r.dropout;
  if (config.features.empty()) {
    faults.add("data.features.sparse",
               "got none; expected at least one feature, whose embeddings the model learns");
  } else if (config.architecture == Architecture::kDlrm && config.num_features() == 1 &&
             config.dense.empty()) {
    faults.add(
        "model.recommender.architecture",
        "got dlrm, and there is one feature, so no pair to multiply; expected more features, or wide_deep");
  }
  return config;
}

RecommenderConfig load_recommender_config(const Job& job, const FeatureInfo& info) {
  JobFaults faults(job.spec.said);
  RecommenderConfig config = load_recommender_config(job, info, faults);
  faults.throw_if_any();
  return config;
}

std::optional<FeatureInfo> said_features(const spec::JobSpec& spec) {
  const spec::Recommender& r = spec.model.recommender;
  std::vector<std::string> dense = spec.data.features.dense, sparse = spec.data.features.sparse;
  if (spec.data.train.format == spec::FileFormat::kCriteo && dense.empty() && sparse.empty()) {
    for (int i = 1; i <= 13; ++i) dense.push_back(fmt::format("I{}", i));
    for (int i = 1; i <= 26; ++i) sparse.push_back(fmt::format("C{}", i));
  }
  const auto is_pattern = [](const std::string& name) { return name.find('*') != std::string::npos; };
  if (sparse.empty() || std::any_of(dense.begin(), dense.end(), is_pattern) ||
      std::any_of(sparse.begin(), sparse.end(), is_pattern)) {
    return std::nullopt;
  }
  FeatureInfo info;
  info.dense = std::move(dense);
  for (std::string& name : sparse) {
    std::string table_name = name;
    for (const auto& [table, said] : r.tables) {
      if (std::count(said.features.begin(), said.features.end(), name) != 0) table_name = table;
    }
    auto table = std::find_if(info.tables.begin(), info.tables.end(),
                              [&](const auto& t) { return t.name == table_name; });
    if (table == info.tables.end()) {
      const auto said = r.tables.find(table_name);
      const auto rows = said != r.tables.end() && said->second.rows ? said->second.rows : r.rows;
      // What a vocabulary is said to have is its limit.
      const bool is_known = spec.data.features.ids != spec::IdMapping::kVocabulary;
      table = info.tables.insert(info.tables.end(), {table_name, is_known ? rows.value_or(0) : 0});
    }
    info.sparse.push_back({std::move(name), table - info.tables.begin()});
  }
  return info;
}

}  // namespace trainer
