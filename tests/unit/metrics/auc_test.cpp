#include "metrics/auc.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using trainer::metrics::count_pairs;
using trainer::metrics::GroupedAuc;
using trainer::metrics::PairCounter;
using trainer::metrics::row_key;

namespace {

struct Row {
  float score;
  bool label;
};

std::vector<int64_t> keys_of(const std::vector<Row>& rows) {
  std::vector<int64_t> keys;
  for (const Row& row : rows) keys.push_back(row_key(row.score, row.label));
  return keys;
}

// By the definition: every pair.
double auc_by_pairs(const std::vector<Row>& rows) {
  double ordered = 0, pairs = 0;
  for (const Row& positive : rows) {
    for (const Row& negative : rows) {
      if (!positive.label || negative.label) continue;
      ++pairs;
      ordered += positive.score > negative.score ? 1 : positive.score == negative.score ? 0.5 : 0;
    }
  }
  return ordered / pairs;
}

}  // namespace

TEST_CASE("keys of rows sort as their scores do, label 0 first where scores are equal") {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> ascending = {-kInf, -3e38F, -1.5F, -1, -kTiny, 0, kTiny, 1, 1.5F, 3e38F, kInf};
  for (size_t i = 0; i < ascending.size(); ++i) {
    CHECK(row_key(ascending[i], false) + 1 == row_key(ascending[i], true));
    if (i > 0) CHECK(row_key(ascending[i - 1], true) < row_key(ascending[i], false));
  }
  CHECK(row_key(-0.0F, true) == row_key(0.0F, true));
}

TEST_CASE("the AUC is that of all pairs") {
  std::mt19937 random(3);
  for (const int distinct : {1, 2, 10, 1 << 24}) {
    std::vector<Row> rows;
    for (int i = 0; i < 400; ++i) {
      const auto score =
          static_cast<float>(static_cast<int>(random() % static_cast<unsigned>(distinct)) - distinct / 2);
      rows.push_back({score, random() % 3 == 0});
    }
    CHECK(std::abs(count_pairs(keys_of(rows)).auc() - auc_by_pairs(rows)) < 1e-12);
  }
}

TEST_CASE("pairs are counted exactly at billions of rows") {
  constexpr uint64_t kMany = 6'000'000'000;
  PairCounter counter;
  counter.add(0, kMany);
  counter.add(kMany, kMany);
  CHECK(counter.auc() == 0.75);  // half the pairs ordered, half tied
  CHECK(counter.error_bound() == 0.25);
  // One pair of 10^18 out of order.
  PairCounter nearly;
  nearly.add(0, 999'999'999);
  nearly.add(1, 0);
  nearly.add(0, 1);
  nearly.add(999'999'999, 0);
  CHECK(nearly.auc() == 1 - 1e-18);
  CHECK(nearly.positives() == 1'000'000'000);
  CHECK(nearly.negatives() == 1'000'000'000);
}

TEST_CASE("rows of one class, or none, have no AUC") {
  CHECK(std::isnan(count_pairs(std::vector<int64_t>()).auc()));
  CHECK(std::isnan(count_pairs(keys_of({{1, true}, {2, true}})).auc()));
  CHECK(std::isnan(count_pairs(keys_of({{1, false}, {2, false}})).auc()));
  CHECK(std::isnan(count_pairs(std::vector<double>{0, 2}, std::vector<double>{0, 0}).error_bound()));
}

TEST_CASE("the AUC of bins is no farther from the exact one than its bound") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<Row> rows;
  for (int i = 0; i < 2000; ++i) {
    const bool label = random() % 4 == 0;
    rows.push_back({normal(random) + (label ? 0.7F : 0), label});
  }
  const double exact = count_pairs(keys_of(rows)).auc();
  double last_bound = 1;
  for (const int bins : {1, 4, 32, 1024, 65536}) {
    std::vector<double> negatives(static_cast<size_t>(bins)), positives(negatives);
    for (const Row& row : rows) {
      const auto bin = static_cast<size_t>((static_cast<double>(row.score) + 8) / 16 * bins);
      ++(row.label ? positives : negatives)[bin];
    }
    const PairCounter binned = count_pairs(negatives, positives);
    INFO(bins << " bins, bound " << binned.error_bound());
    CHECK(std::abs(binned.auc() - exact) <= binned.error_bound());
    CHECK(binned.error_bound() < last_bound);
    last_bound = binned.error_bound();
  }
  CHECK(last_bound < 1e-4);
}

TEST_CASE("the AUC of groups is the mean over groups with both classes, weighted by their rows") {
  // Group 7: perfect, 2 rows; group -1: half, 4 rows; group 3: clicks alone.
  const std::vector<Row> rows = {{2, true}, {0, true},  {1, false}, {1, true},
                                 {0, true}, {0, false}, {1, false}};
  const std::vector<int64_t> groups = {7, 3, 7, -1, -1, -1, -1};
  const GroupedAuc found = trainer::metrics::grouped_auc(keys_of(rows), groups);
  CHECK(found.auc == Approx((2 * 1.0 + 4 * 0.5) / 6));
  CHECK(found.groups == 2);
  CHECK(found.one_class == 1);
  const GroupedAuc none = trainer::metrics::grouped_auc(keys_of({{1, true}}), std::vector<int64_t>{1});
  CHECK(std::isnan(none.auc));
  CHECK(none.groups == 0);
  CHECK(none.one_class == 1);
}
