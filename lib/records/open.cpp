#include "records/open.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "records/fingerprint.h"
#include "records/record_file.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;

// Keeps rows as they come, then puts them together.
class MemorySink final : public RowSink {
 public:
  explicit MemorySink(std::shared_ptr<const RecordReader> reader) : reader_(std::move(reader)) {}

  void add(EncodedRows&& rows) override { parts_.push_back(std::move(rows)); }

  std::shared_ptr<const Records> records(const RowLayout& layout) {
    struct Memory {
      std::string rows, ragged;
    };
    const auto memory = std::make_shared<Memory>();
    size_t row_bytes = 0, ragged_bytes = 0;
    for (const EncodedRows& part : parts_) {
      row_bytes += part.rows.size();
      ragged_bytes += part.ragged.size();
    }
    memory->rows.reserve(row_bytes);
    memory->ragged.reserve(ragged_bytes);
    std::vector<int64_t> first_rows;
    int64_t num_rows = 0;
    Fingerprint print;
    for (EncodedRows& part : parts_) {
      first_rows.push_back(num_rows);
      num_rows += part.num_rows;
      move_ragged(layout, memory->ragged.size(), part.rows);
      print.add(part.rows);
      print.add(part.ragged);
      memory->rows += part.rows;
      memory->ragged += part.ragged;
      part = {};
    }
    const auto where = [reader = reader_, first_rows = std::move(first_rows)](int64_t row) {
      const auto next = std::upper_bound(first_rows.begin(), first_rows.end(), row);
      const int64_t part = next - first_rows.begin() - 1;
      return reader->where(part, row - first_rows[static_cast<size_t>(part)]);
    };
    return std::make_shared<const Records>(layout, memory, memory->rows, memory->ragged, print.value(),
                                           where);
  }

 private:
  std::shared_ptr<const RecordReader> reader_;
  std::vector<EncodedRows> parts_;
};

std::shared_ptr<const Records> read_text(std::shared_ptr<const RecordReader> reader, const FeatureMap& map,
                                         bool labels_required, int64_t num_threads) {
  if (reader->size_bytes() > kMostTextBytes) {
    fail<DataError>(
        "{}: {} of text, expected at most {}, as every run reads it anew\nhint: trainer prepare JOB.yaml "
        "--output DIR, then "
        "data.train.path: DIR/train.records",
        reader->path(), binary_bytes(reader->size_bytes()), binary_bytes(kMostTextBytes));
  }
  MemorySink sink(reader);
  const RowLayout layout = map.encode(*reader, labels_required, num_threads, sink);
  return sink.records(layout);
}

}  // namespace

RecordSets open_records(const spec::Data& data, const spec::Recommender& model, int64_t num_threads) {
  RecordSets sets;
  if (is_record_file(data.train)) {
    const fs::path directory = fs::path(data.train.path).parent_path();
    sets.map = std::make_shared<const FeatureMap>(FeatureMap::load(directory));
    sets.map->check_said(data.train.path, data.features, model);
    sets.train = open_records(data.train, *sets.map, true, num_threads);
  } else {
    const std::shared_ptr<const RecordReader> reader = open_reader(data.train);
    sets.map =
        std::make_shared<const FeatureMap>(FeatureMap::fit(*reader, data.features, model, num_threads));
    sets.train = read_text(reader, *sets.map, true, num_threads);
  }
  if (!data.validation.path.empty())
    sets.validation = open_records(data.validation, *sets.map, true, num_threads);
  return sets;
}

std::shared_ptr<const Records> open_records(const spec::DataSource& source, const FeatureMap& map,
                                            bool labels_required, int64_t num_threads) {
  if (is_record_file(source)) return open_record_file(source.path, map, labels_required);
  return read_text(open_reader(source), map, labels_required, num_threads);
}

}  // namespace trainer::records
