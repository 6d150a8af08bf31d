#include "data/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using trainer::data::Sampler;

namespace {

std::vector<int64_t> order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle = true) {
  const Sampler sampler(n, seed, epoch, shuffle);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < n; ++i) samples.push_back(sampler[i]);
  return samples;
}

}  // namespace

TEST_CASE("an epoch's order is a permutation, for any number of samples") {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 10, 16, 17, 100, 101, 997, 3668, 4096, 10000}) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(static_cast<size_t>(n));
      for (const int64_t sample : order(n, 42, epoch)) {
        REQUIRE(sample >= 0);
        REQUIRE(sample < n);
        ++seen[static_cast<size_t>(sample)];
      }
      REQUIRE(seen == std::vector<int>(static_cast<size_t>(n), 1));
    }
  }
}

TEST_CASE("the order is a function of seed and epoch, fixed for all versions and platforms") {
  // From tests/parity/sampler_reference.py. A change makes resumed runs see other data: it needs a line in
  // CHANGELOG.md.
  CHECK(order(10, 42, 0) == std::vector<int64_t>{6, 7, 3, 8, 5, 4, 9, 2, 1, 0});
  CHECK(order(10, 42, 1) == std::vector<int64_t>{8, 3, 6, 9, 4, 0, 2, 5, 1, 7});
  CHECK(order(10, 43, 0) == std::vector<int64_t>{4, 1, 6, 7, 3, 9, 2, 5, 8, 0});
  CHECK(order(13, (uint64_t{1} << 63) + 5, 1000000) ==
        std::vector<int64_t>{4, 12, 10, 3, 8, 2, 0, 5, 7, 1, 11, 6, 9});
  CHECK(Sampler(100000, 42, 7, true)[99990] == 58286);
  CHECK(Sampler(100000, 42, 7, true)[99999] == 54785);
  CHECK(order(5, 1, 0, false) == std::vector<int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("positions beyond 32 bits are distinct samples in range") {
  constexpr int64_t kSize = int64_t{5} << 32;
  const Sampler sampler(kSize, 1, 0, true);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < 1000; ++i) samples.push_back(sampler[kSize - 1 - i]);
  std::sort(samples.begin(), samples.end());
  CHECK(samples.front() >= 0);
  CHECK(samples.back() < kSize);
  CHECK(std::adjacent_find(samples.begin(), samples.end()) == samples.end());
}

TEST_CASE("over epochs, every sample is as likely at every position, and neighbours part") {
  constexpr int64_t kSize = 10, kEpochs = 20000;
  std::vector<double> count(kSize * kSize);
  double num_pairs = 0;  // i followed by i+1
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> samples = order(kSize, 7, epoch);
    for (size_t i = 0; i < samples.size(); ++i) {
      ++count[i * kSize + static_cast<size_t>(samples[i])];
      if (i > 0 && samples[i] == samples[i - 1] + 1) ++num_pairs;
    }
  }
  double chi2 = 0;
  constexpr double kExpected = kEpochs / kSize;
  for (const double c : count) chi2 += (c - kExpected) * (c - kExpected) / kExpected;
  CHECK(chi2 < 126.1);  // chi-square of 81 degrees of freedom, p = 0.001
  // A random permutation has (n-1)/n such pairs on average, variance about 1.
  const double mean = kEpochs * (kSize - 1.0) / kSize;
  CHECK(std::abs(num_pairs - mean) < 4 * std::sqrt(kEpochs));
}
