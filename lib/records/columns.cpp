#include "records/columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "spec/fault.h"

namespace trainer::records {
namespace {

using Names = std::vector<std::string>;

// `pattern`: characters, and * for any number of any.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && pattern[0] == name[0] && matches(pattern.substr(1), name.substr(1));
  return matches(pattern.substr(1), name) || (!name.empty() && matches(pattern, name.substr(1)));
}

bool is_pattern(std::string_view name) {
  return name.find('*') != std::string_view::npos;
}

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<int64_t> column_of(const Columns& file, std::string_view name) {
  const Names& columns = file.names;
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found != columns.end()) return found - columns.begin();
  size_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && stop == name.data() + name.size() && number < columns.size()) {
    return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

// The names that a list stands for: its patterns take columns that are not yet `taken`.
Names expand(const Columns& file, std::string_view key, const Names& said, const Names& taken) {
  Names names;
  for (const std::string& item : said) {
    if (!is_pattern(item)) {
      if (contains(names, item)) fail<SpecError>("{}: {} is there twice", key, spec::shown(item));
      names.push_back(item);
      continue;
    }
    const size_t before = names.size();
    for (const std::string& column : file.names) {
      if (matches(item, column) && !contains(taken, column) && !contains(names, column) &&
          !contains(said, column))
        names.push_back(column);
    }
    if (names.size() == before) {
      fail<SpecError>("{}: no column matches {} in {}; columns: {}", key, spec::shown(item), file.path,
                      fmt::join(file.names, ", "));
    }
  }
  return names;
}

void add_named(const Names& said, Names& taken) {
  for (const std::string& item : said) {
    if (!is_pattern(item)) taken.push_back(item);
  }
}

}  // namespace

bool has_column(const Columns& file, std::string_view name) {
  return column_of(file, name).has_value();
}

int64_t find_column(const Columns& file, std::string_view key, std::string_view name) {
  const Names& columns = file.names;
  const std::optional<int64_t> column = column_of(file, name);
  if (!column) {
    fail<DataError>("{}: no column {} ({}); columns: {}{}", file.path, spec::shown(name), key,
                    fmt::join(columns, ", "), spec::did_you_mean(name, {columns.begin(), columns.end()}));
  }
  if (std::count(columns.begin(), columns.end(), name) > 1) {
    fail<DataError>("{}: two columns are named {} ({}); expected one", file.path, spec::shown(name), key);
  }
  return *column;
}

spec::Features resolve_columns(const Columns& file, spec::Features features) {
  const bool is_criteo = contains(file.names, "I13") && contains(file.names, "C26");
  if (features.dense.empty() && features.sparse.empty()) {
    if (!is_criteo) {
      fail<SpecError>(
          "data.features: got neither dense nor sparse; expected the columns that are features\nhint: {} has "
          "{}",
          file.path, fmt::join(file.names, ", "));
    }
    features.dense = {"I*"};
    features.sparse = {"C*"};
  }
  if (features.label.empty() && is_criteo) features.label = "label";
  if (features.label.empty()) {
    fail<SpecError>("data.features.label: got none; expected the column of clicks\nhint: {} has {}",
                    file.path, fmt::join(file.names, ", "));
  }
  Names taken = {features.label};
  add_named(features.sparse, taken);
  const Names dense = expand(file, "data.features.dense", features.dense, taken);
  taken = dense;
  taken.push_back(features.label);
  const Names sparse = expand(file, "data.features.sparse", features.sparse, taken);
  for (const std::string& name : sparse) {
    if (contains(dense, name)) {
      fail<SpecError>("data.features.sparse: {} is in data.features.dense too; expected one of them",
                      spec::shown(name));
    }
  }
  if (contains(dense, features.label) || contains(sparse, features.label)) {
    fail<SpecError>("data.features.label: {} is a feature too; expected a column of its own",
                    spec::shown(features.label));
  }
  features.dense = dense;
  features.sparse = sparse;
  return features;
}

FeatureInfo make_tables(const spec::Features& features, const spec::Recommender& model) {
  const Names& sparse = features.sparse;
  std::vector<std::string> table_of(sparse.size());  // empty: none yet
  for (const auto& [name, table] : model.tables) {
    const Names own = {name};
    for (const std::string& item : table.features.empty() ? own : table.features) {
      bool found = false;
      for (size_t f = 0; f < sparse.size(); ++f) {
        if (!matches(item, sparse[f])) continue;
        found = true;
        if (!table_of[f].empty() && table_of[f] != name) {
          fail<SpecError>(
              "model.recommender.tables.{}.features: {} is in table {} too; expected one table a feature",
              name, spec::shown(sparse[f]), table_of[f]);
        }
        table_of[f] = name;
      }
      if (!found) {
        fail<SpecError>(
            "model.recommender.tables.{}: got feature {}; expected one of {} (data.features.sparse){}", name,
            spec::shown(item), fmt::join(sparse, ", "),
            spec::did_you_mean(item, {sparse.begin(), sparse.end()}));
      }
    }
  }
  FeatureInfo info;
  info.dense = features.dense;
  info.multi_hot = !features.separator.empty() || !features.weight_separator.empty();
  info.weighted = !features.weight_separator.empty();
  info.groups = !features.group.empty();
  for (size_t f = 0; f < sparse.size(); ++f) {
    const bool said = !table_of[f].empty();
    const std::string& name = said ? table_of[f] : sparse[f];
    const auto found = std::find_if(info.tables.begin(), info.tables.end(),
                                    [&](const TableInfo& table) { return table.name == name; });
    const bool clash = !said && model.tables.count(name) != 0;
    if (clash) {
      fail<SpecError>(
          "model.recommender.tables.{}: is not of the feature of that name, which has no table; expected "
          "another name",
          name);
    }
    info.sparse.push_back({sparse[f], found - info.tables.begin()});
    if (found != info.tables.end()) continue;
    std::optional<int64_t> rows = model.rows;
    if (said && model.tables.at(name).rows) rows = model.tables.at(name).rows;
    if (rows && *rows < 1)
      fail<SpecError>("model.recommender.tables.{}.rows: got {}; expected 1 or more", name, *rows);
    info.tables.push_back({name, rows.value_or(0)});
  }
  return info;
}

}  // namespace trainer::records
