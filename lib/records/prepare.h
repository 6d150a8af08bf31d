#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "records/click_model.h"
#include "spec/job_spec.h"

// What `trainer prepare` makes of click records, each a directory.

namespace trainer::records {

// In a directory that prepare_synthetic() wrote.
inline constexpr const char* kTruthFile = "truth.json";

struct PrepareOptions {
  spec::Data data;  // train, validation and features
  spec::Recommender model;
  std::string output;
  int64_t num_threads = 1;
  bool force = false;  // replace what an earlier run left
};

// Files of text to the format `records`: train.records and, where there is data.validation, validation.records, with the map
// that was fitted on the training data beside them. Memory grows with the vocabulary alone. Prints progress. Readers see all
// of it or nothing. False: `stop` was set, and nothing is left of this run. Throws SpecError and DataError.
bool prepare(const PrepareOptions& options, const std::atomic<bool>& stop);

struct SyntheticOptions {
  ClickModelOptions model;
  int64_t rows = 1000000;
  int64_t validation_rows = 100000;
  spec::FileFormat format = spec::FileFormat::kRecords;  // or kCriteo, kCsv
  std::string output;
  int64_t num_threads = 1;
  bool force = false;
};

// Clicks of a known ground truth: train and validation (.records; .tsv as Criteo's; .csv), and kTruthFile, which says how they
// were made and the best scores that any model can expect on validation. As prepare() else. The number of threads changes
// nothing.
bool prepare_synthetic(const SyntheticOptions& options, const std::atomic<bool>& stop);

}  // namespace trainer::records
