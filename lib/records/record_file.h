#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "core/descriptor.h"
#include "records/feature_map.h"
#include "records/fingerprint.h"
#include "records/records.h"
#include "spec/job_spec.h"

// The format `records`: a header of 64 bytes, the rows of Records, their ragged part, and JSON that says what they are. The
// map that made them is beside the file (FeatureMap::save).

namespace trainer::records {

// By its format, else by its first bytes; what cannot be opened is none.
bool is_record_file(const spec::DataSource& source);

// Maps it. Throws DataError when it is none, not whole, of another version, or was made by another map, and SpecError
// when there is no such file or it has no labels and they are required.
std::shared_ptr<const Records> open_record_file(const std::filesystem::path& path, const FeatureMap& map,
                                                bool labels_required);

// Writes one, in memory that does not grow. What it writes before finish() is in files whose names end in ".partial", which
// the destructor removes.
class RecordFileWriter final : public RowSink {
 public:
  RecordFileWriter(std::filesystem::path path, const RowLayout& layout);
  ~RecordFileWriter() override;
  RecordFileWriter(const RecordFileWriter&) = delete;
  RecordFileWriter& operator=(const RecordFileWriter&) = delete;

  void add(EncodedRows&& rows) override;
  // Gives the file its name. `source`: what it was made of, for whoever reads it. Throws DataError, also when there are
  // no rows.
  void finish(const FeatureMap& map, const std::string& source);
  int64_t num_rows() const { return num_rows_; }

 private:
  std::filesystem::path path_, partial_, ragged_partial_;
  RowLayout layout_;
  Descriptor fd_, ragged_fd_;
  int64_t num_rows_ = 0;
  uint64_t ragged_bytes_ = 0;
  Fingerprint print_;
};

// Adds `places` to where the ragged part of each row begins; nothing when the layout has none.
void move_ragged(const RowLayout& layout, uint64_t places, std::string& rows);

}  // namespace trainer::records
