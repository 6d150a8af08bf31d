#include "data/subset.h"

#include <catch2/catch.hpp>

using trainer::data::Dataset;
using trainer::data::Subset;

namespace {

// Samples that are their numbers.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t cost(int64_t sample) const override { return sample; }
  std::vector<int32_t> lengths(int64_t) const override {
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < size_; ++i) lengths.push_back(static_cast<int32_t>(i));
    return lengths;
  }
  int64_t targets(int64_t sample, uint64_t, int64_t) const override { return sample; }
  trainer::data::TextBatch batch(const std::vector<int64_t>& samples, uint64_t, int64_t,
                                 bool) const override {
    trainer::data::TextBatch batch;
    batch.samples = samples;
    return batch;
  }
  std::string where(int64_t sample) const override { return std::to_string(sample); }
  uint64_t fingerprint() const override { return 7; }

 private:
  int64_t size_;
};

}  // namespace

TEST_CASE("a subset is spread evenly over the dataset, and all of it when it is as large") {
  const auto ten = std::make_shared<const Numbers>(10);
  const Subset four(ten, 4);
  CHECK(four.size() == 4);
  CHECK(four.batch({0, 1, 2, 3}, 0, 0, false).samples == std::vector<int64_t>{0, 2, 5, 7});
  CHECK(four.lengths(1) == std::vector<int32_t>{0, 2, 5, 7});
  CHECK(four.cost(1) == 2);
  CHECK(four.targets(2, 0, 0) == 5);
  CHECK(four.where(3) == "7");
  CHECK(four.fingerprint() == 7);
  const Subset all(ten, 10);
  CHECK(all.lengths(1) == ten->lengths(1));
}
