#include "launch/coordinator/stragglers.h"

#include <catch2/catch.hpp>

using namespace trainer::launch;

namespace {

Status status(int64_t interval, std::vector<std::pair<int64_t, double>> busy_s) {
  Status s{0, interval, {}};
  for (const auto& [rank, seconds] : busy_s) {
    RankStatus r;
    r.rank = rank;
    r.attached = true;
    r.busy_ns = static_cast<int64_t>(seconds * 1e9);
    s.ranks.push_back(r);
  }
  return s;
}

}  // namespace

TEST_CASE("the rank that is busy longer than the median rank is slow, by what it did in the interval") {
  Stragglers stragglers(1.5);
  stragglers.begin(2);
  CHECK(stragglers.add(0, status(0, {{0, 10}, {1, 10}})).empty());  // the other node has not told
  CHECK(stragglers.add(1, status(0, {{2, 10}, {3, 12}})).empty());
  CHECK(stragglers.add(1, status(1, {{2, 20}, {3, 32}})).empty());
  const auto lines = stragglers.add(0, status(1, {{0, 20}, {1, 20}}));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "slow: rank 3 (node 1) was busy for 20.0 s, 2.0 times as long as the median rank");
  CHECK(stragglers.add(0, status(2, {{0, 30}, {1, 30}})).empty());
  CHECK(stragglers.add(1, status(2, {{2, 30}, {3, 42}})).empty());  // as quick as the others now
}

TEST_CASE("of two ranks the slower is found, of one none") {
  Stragglers stragglers(1.5);
  stragglers.begin(1);
  CHECK(stragglers.add(0, status(0, {{0, 1}})).empty());
  stragglers.begin(1);
  CHECK(stragglers.add(0, status(0, {{0, 10}, {1, 30}})).size() == 1);
}
