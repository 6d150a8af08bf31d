#pragma once

#include <memory>
#include <utility>

#include "data/dataset.h"

namespace trainer::data {

// `count` samples of a dataset, evenly spread over it: sample i is its sample floor(i size / count).
class Subset final : public Dataset {
 public:
  // 0 < count <= all->size()
  Subset(std::shared_ptr<const Dataset> all, int64_t count) : all_(std::move(all)), count_(count) {}

  int64_t size() const override { return count_; }
  int64_t cost(int64_t sample) const override { return all_->cost(in_all(sample)); }
  std::vector<int32_t> lengths(int64_t num_threads) const override {
    const std::vector<int32_t> all = all_->lengths(num_threads);
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < count_; ++i) lengths.push_back(all[static_cast<size_t>(in_all(i))]);
    return lengths;
  }
  int64_t targets(int64_t sample, uint64_t seed, int64_t epoch) const override {
    return all_->targets(in_all(sample), seed, epoch);
  }
  TextBatch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                  bool pinned) const override {
    std::vector<int64_t> chosen;
    for (const int64_t sample : samples) chosen.push_back(in_all(sample));
    return all_->batch(chosen, seed, epoch, pinned);
  }
  std::string where(int64_t sample) const override { return all_->where(in_all(sample)); }
  uint64_t fingerprint() const override { return all_->fingerprint(); }

 private:
  // Counts of samples are far below 2^31, their products within 64 bits.
  int64_t in_all(int64_t sample) const { return sample * all_->size() / count_; }

  std::shared_ptr<const Dataset> all_;
  int64_t count_;
};

}  // namespace trainer::data
