#pragma once

#include <cstdint>
#include <memory>

#include "records/feature_map.h"
#include "records/records.h"
#include "spec/job_spec.h"

namespace trainer::records {

struct RecordSets {
  std::shared_ptr<const Records> train;
  std::shared_ptr<const Records> validation;  // null: data.validation has no path
  std::shared_ptr<const FeatureMap> map;
};

// A job's data. Text is read into memory by a map that is fitted on data.train; what prepare wrote is mapped, and its map is the
// one beside it. Throws SpecError, also when the job says something else than what was prepared, and DataError.
RecordSets open_records(const spec::Data& data, const spec::Recommender& model, int64_t num_threads);

// Other data for a map: text, or prepared by this very map. Without the column of labels it is refused if labels are required.
std::shared_ptr<const Records> open_records(const spec::DataSource& source, const FeatureMap& map,
                                            bool labels_required, int64_t num_threads);

// The largest text that is read anew by every run; more is for `trainer prepare`.
inline constexpr int64_t kMostTextBytes = int64_t{4} << 30;

}  // namespace trainer::records
