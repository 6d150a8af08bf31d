#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "records/feature_info.h"
#include "records/records.h"

namespace trainer::data {

// Click records by number. Thread-safe.
class ClickRecords final : public Dataset {
 public:
  // `info`: of the map that made the records.
  ClickRecords(std::shared_ptr<const records::Records> records, records::FeatureInfo info);

  int64_t size() const override { return records_->size(); }
  // Its ids and dense features.
  int64_t cost(int64_t sample) const override;
  std::vector<int32_t> lengths(int64_t num_threads) const override;
  int64_t targets(int64_t, uint64_t, int64_t) const override { return 1; }
  // Labels, records, samples and a row key for each. Throws DataError when a file's ids are not rows of its tables.
  Batch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, bool pinned) const override;
  std::string where(int64_t sample) const override { return records_->where(sample); }
  uint64_t fingerprint() const override { return records_->fingerprint(); }

  bool has_labels() const { return records_->layout().labels; }
  const records::FeatureInfo& info() const { return info_; }

 private:
  void check_ids(const Batch& batch) const;

  std::shared_ptr<const records::Records> records_;
  records::FeatureInfo info_;
};

}  // namespace trainer::data
