#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "records/feature_info.h"
#include "records/reader.h"
#include "records/records.h"
#include "records/vocabulary.h"
#include "spec/job_spec.h"

namespace trainer::records {

// The name of a saved map's file.
inline constexpr const char* kFeaturesFile = "features.json";

// Rows as a FeatureMap makes them, of some part of a file.
struct EncodedRows {
  std::string rows, ragged;  // as in Records; places in the ragged part count from this one's begin
  int64_t num_rows = 0;
  std::vector<int64_t> out_of_range;  // ids of each sparse feature that were wrapped or left out
};

// Where encoded rows go, in the file's order.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void add(EncodedRows&& rows) = 0;
};

// How the fields of records become numbers: the columns, each table's rows and its fitted vocabulary. It is saved with the
// model and maps every file the same way. Const is thread-safe.
//
// Dense: a number; an empty field is 0; NaN and infinities are refused. `dense_transform: log` is ln(1 + max(x, 0)), as in
// facebookresearch/dlrm (data_utils.py).
//
// Sparse: an empty field is row 0 of its table, whatever the mapping, but an empty bag where data.features.separator or
// weight_separator says that fields are bags. The mappings:
//   vocabulary  as Vocabulary has it; an id that it has not is row 0
//   modulo      the number modulo the rows. An id of digits alone is decimal, another one hexadecimal, with or without 0x;
//               of Criteo's own files all are hexadecimal
//   murmur      murmur() of the bytes modulo the rows
//   identity    the number is the row
// Ids that are no number, negative, or (identity) not below the table's rows are out of range.
class FeatureMap {
 public:
  // Resolves the columns, by the file `train` and the tables that the model says; fits vocabularies on it. Throws SpecError and
  // DataError.
  static FeatureMap fit(const RecordReader& train, const spec::Features& features,
                        const spec::Recommender& model, int64_t num_threads);
  // One without patterns and vocabularies, as it is said.
  static FeatureMap given(spec::Features features, FeatureInfo info);
  // features.json and a file for each vocabulary. Throws CheckpointError; load() DataError.
  void save(const std::filesystem::path& directory) const;
  static FeatureMap load(const std::filesystem::path& directory);

  const FeatureInfo& info() const { return info_; }
  // With the columns that patterns stood for.
  const spec::Features& features() const { return features_; }
  const Vocabulary* vocabulary(int64_t table) const;
  // Changes with anything that changes what a file becomes.
  uint64_t fingerprint() const;

  // Rows of a file with or without labels.
  RowLayout layout(bool labels) const;
  // Encodes all rows, on all threads at once, in memory that does not grow with the file, and prints progress when it takes
  // long. A file without the column of labels is refused unless `labels` may be missing; the returned layout tells.
  // Warns of ids out of range that it wrapped or left out. Throws DataError naming file and line.
  RowLayout encode(const RecordReader& reader, bool labels_required, int64_t num_threads,
                   RowSink& sink) const;
  // Throws SpecError when what a job says is not what this map, of `path`, was made with. What a job leaves at its default counts
  // as not said.
  void check_said(const std::string& path, const spec::Features& features,
                  const spec::Recommender& model) const;

 private:
  FeatureMap() = default;
  friend class RowEncoder;

  spec::Features features_;
  FeatureInfo info_;
  bool hexadecimal_ = false;              // modulo: also ids of digits alone
  std::vector<Vocabulary> vocabularies_;  // by table; empty: another mapping
};

}  // namespace trainer::records
