#include "metrics/auc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

namespace trainer::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Ascending. Keys have 33 bits: three counting passes, several times as fast as a sort by comparisons.
std::vector<uint64_t> sorted(std::span<const int64_t> keys) {
  constexpr int kBits = 11, kPasses = 3;
  constexpr size_t kBuckets = size_t{1} << kBits;
  const auto digit = [](uint64_t key, int pass) { return (key >> (pass * kBits)) & (kBuckets - 1); };
  std::vector<uint64_t> from(keys.size()), to(keys.size());
  std::array<std::array<size_t, kBuckets>, kPasses> starts{};
  for (size_t i = 0; i < keys.size(); ++i) {
    from[i] = static_cast<uint64_t>(keys[i] + (int64_t{1} << 32));
    for (int pass = 0; pass < kPasses; ++pass) ++starts[static_cast<size_t>(pass)][digit(from[i], pass)];
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    auto& start = starts[static_cast<size_t>(pass)];
    size_t begin = 0;
    for (size_t& count : start) begin += std::exchange(count, begin);
    for (const uint64_t key : from) to[start[digit(key, pass)]++] = key;
    from.swap(to);
  }
  return from;
}

// `keys`: sorted.
template <class Key>
PairCounter count_sorted(std::span<const Key> keys) {
  PairCounter counter;
  for (size_t begin = 0, end; begin < keys.size(); begin = end) {
    uint64_t positives = 0;
    for (end = begin; end < keys.size() && keys[end] >> 1 == keys[begin] >> 1; ++end) {
      positives += static_cast<uint64_t>(keys[end] & 1);
    }
    counter.add(positives, end - begin - positives);
  }
  return counter;
}

}  // namespace

void PairCounter::add(uint64_t positives, uint64_t negatives) {
  twice_ordered_ += Wide{positives} * (2 * Wide{negatives_} + negatives);
  ties_ += Wide{positives} * negatives;
  positives_ += positives;
  negatives_ += negatives;
}

double PairCounter::auc() const {
  const Wide pairs = Wide{positives_} * negatives_;
  return pairs == 0 ? kNaN : static_cast<double>(twice_ordered_) / (2 * static_cast<double>(pairs));
}

double PairCounter::error_bound() const {
  const Wide pairs = Wide{positives_} * negatives_;
  return pairs == 0 ? kNaN : static_cast<double>(ties_) / (2 * static_cast<double>(pairs));
}

int64_t row_key(float score, bool label) {
  const auto bits = std::bit_cast<int32_t>(score + 0.0F);       // -0 + 0 is 0
  const int32_t ordered = bits < 0 ? bits ^ 0x7fffffff : bits;  // sign and magnitude to two's complement
  return 2 * int64_t{ordered} + (label ? 1 : 0);
}

PairCounter count_pairs(std::span<const int64_t> keys) {
  return count_sorted(std::span<const uint64_t>(sorted(keys)));
}

PairCounter count_pairs(std::span<const double> negatives, std::span<const double> positives) {
  PairCounter counter;
  for (size_t i = 0; i < negatives.size(); ++i) {
    counter.add(static_cast<uint64_t>(positives[i]), static_cast<uint64_t>(negatives[i]));
  }
  return counter;
}

GroupedAuc grouped_auc(std::span<const int64_t> keys, std::span<const int64_t> groups) {
  std::vector<std::pair<int64_t, int64_t>> rows(keys.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = {groups[i], keys[i]};
  std::sort(rows.begin(), rows.end());
  GroupedAuc result{kNaN, 0, 0};
  double sum = 0, weight = 0;
  std::vector<int64_t> group;
  for (size_t begin = 0, end; begin < rows.size(); begin = end) {
    group.clear();
    for (end = begin; end < rows.size() && rows[end].first == rows[begin].first; ++end) {
      group.push_back(rows[end].second);
    }
    const PairCounter counter = count_sorted(std::span<const int64_t>(group));
    if (counter.positives() == 0 || counter.negatives() == 0) {
      ++result.one_class;
      continue;
    }
    ++result.groups;
    sum += counter.auc() * static_cast<double>(group.size());
    weight += static_cast<double>(group.size());
  }
  if (result.groups > 0) result.auc = sum / weight;
  return result;
}

}  // namespace trainer::metrics
