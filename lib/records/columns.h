#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "records/feature_info.h"
#include "spec/job_spec.h"

namespace trainer::records {

struct Columns {
  std::string path;
  std::vector<std::string> names;
};

// data.features with names instead of patterns, for a file with these columns. A column that is named goes where it is named,
// the others where a pattern first has them, in the file's order; the label is no feature. Nothing said of dense and sparse,
// and the file has Criteo's columns: those. Throws SpecError.
spec::Features resolve_columns(const Columns& file, spec::Features features);

// Number of a column by its name, or by its number where none has that name. `key` is for messages. Throws DataError.
int64_t find_column(const Columns& file, std::string_view key, std::string_view name);
bool has_column(const Columns& file, std::string_view name);

// The tables of sparse features (names without patterns): those that the model says, and one of its name for each feature
// that is in none. Rows are what is said, or 0. Throws SpecError.
FeatureInfo make_tables(const spec::Features& features, const spec::Recommender& model);

}  // namespace trainer::records
