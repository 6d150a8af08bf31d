#include "records/click_model.h"

#include <catch2/catch.hpp>
#include <cmath>

using trainer::mix64;
using trainer::records::best_scores;
using trainer::records::BestScores;
using trainer::records::ClickModel;
using trainer::records::ClickModelOptions;
using trainer::records::ClickRow;
using trainer::records::Zipf;

TEST_CASE("Zipf draws have their probabilities") {
  for (const double exponent : {0.0, 0.7, 1.0, 1.05, 2.0}) {
    for (const int64_t n : {1, 2, 10, 1000}) {
      const Zipf zipf(n, exponent);
      uint64_t state = 1;
      const auto uniform = [&] { return static_cast<double>(mix64(state++) >> 11) * 0x1p-53; };
      std::vector<int64_t> counts(static_cast<size_t>(n));
      constexpr int kDraws = 100000;
      for (int i = 0; i < kDraws; ++i) ++counts.at(static_cast<size_t>(zipf(uniform)));
      double total = 0;
      for (int64_t i = 1; i <= n; ++i) total += std::pow(static_cast<double>(i), -exponent);
      for (int64_t i = 0; i < std::min<int64_t>(n, 20); ++i) {
        const double p = std::pow(static_cast<double>(i + 1), -exponent) / total;
        // Five standard deviations, of draws that are always the same.
        CHECK(std::abs(static_cast<double>(counts[static_cast<size_t>(i)]) - kDraws * p) <=
              5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9);
      }
    }
  }
  const Zipf huge(int64_t{1} << 40, 1.05);
  uint64_t state = 1;
  int64_t largest = 0;
  for (int i = 0; i < 10000; ++i)
    largest = std::max(largest, huge([&] { return static_cast<double>(mix64(state++) >> 11) * 0x1p-53; }));
  CHECK(largest > (int64_t{1} << 32));
  CHECK(largest < (int64_t{1} << 40));
}

TEST_CASE("clicks follow the probabilities, which have the asked-for mean and spread") {
  ClickModelOptions options;
  options.click_rate = 0.1;
  options.signal = 1;
  const ClickModel model(options);
  ClickRow row;
  double clicks = 0, expected = 0, logits = 0, squares = 0;
  constexpr int kRows = 50000;
  for (int i = 0; i < kRows; ++i) {
    model.row(0, i, row);
    clicks += row.click;
    expected += row.probability;
    const double logit = std::log(row.probability / (1 - row.probability));
    logits += logit / kRows;
    squares += logit * logit / kRows;
  }
  CHECK(expected / kRows == Approx(0.1).margin(0.003));
  CHECK(clicks / kRows == Approx(expected / kRows).margin(5 * std::sqrt(0.09 / kRows)));
  CHECK(std::sqrt(squares - logits * logits) == Approx(1).margin(0.05));
}

TEST_CASE("a row is a function of seed, stream and number; its ids are below their cardinalities") {
  ClickModelOptions options;
  options.cardinalities = {1, 2, 1000, int64_t{1} << 40};
  const ClickModel model(options), again(options);
  options.seed = 43;
  const ClickModel other(options);
  ClickRow a, b, c, d;
  bool differs = false, streams_differ = false;
  for (int64_t i = 0; i < 1000; ++i) {
    model.row(0, i, a);
    again.row(0, i, b);
    REQUIRE(a.ids == b.ids);
    REQUIRE(a.counts == b.counts);
    REQUIRE(a.probability == b.probability);
    for (size_t f = 0; f < a.ids.size(); ++f) REQUIRE((a.ids[f] >= 0 && a.ids[f] < options.cardinalities[f]));
    other.row(0, i, c);
    model.row(1, i, d);
    differs |= c.ids != a.ids;
    streams_differ |= d.ids != a.ids;
  }
  CHECK(differs);
  CHECK(streams_differ);
}

TEST_CASE("the best scores are those of scikit-learn: ties count half") {
  // roc_auc_score and log_loss of scikit-learn 1.9.1
  const std::vector<double> p = {0.1, 0.4, 0.35, 0.8, 0.4, 0.9, 0.1};
  const std::vector<uint8_t> y = {0, 0, 1, 1, 1, 0, 0};
  const BestScores scores = best_scores(p, y);
  CHECK(scores.auc == Approx(0.625).epsilon(1e-12));
  CHECK(scores.log_loss == Approx(0.7447697365375331).epsilon(1e-9));
  const double rate = 3.0 / 7;
  CHECK(
      scores.normalized_entropy ==
      Approx(0.7447697365375331 / -(rate * std::log(rate) + (1 - rate) * std::log(1 - rate))).epsilon(1e-9));
}
