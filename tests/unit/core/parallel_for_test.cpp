#include "core/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using trainer::parallel_for;

TEST_CASE("a parallel loop does every index once, on any number of threads") {
  for (const int64_t threads : {1, 2, 5}) {
    for (const int64_t n : {0, 1, 7, 100}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(n));
      parallel_for(n, 7, threads, [&](int64_t begin, int64_t end) {
        CHECK((begin < end && end <= n && end - begin <= 7));
        for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
      });
      for (const auto& times : done) CHECK(times == 1);
    }
  }
}

TEST_CASE("an error in a parallel loop is thrown to the caller and ends the loop") {
  std::atomic<int64_t> last = 0;
  const auto body = [&](int64_t begin, int64_t) {
    last = std::max<int64_t>(last, begin);
    if (begin >= 3) throw std::runtime_error(std::to_string(begin));
  };
  CHECK_THROWS_WITH(parallel_for(1 << 30, 1, 3, body), "3");
  CHECK(last < 1 << 30);
}

TEST_CASE("each thread of a parallel loop makes one body for itself") {
  std::atomic<int> made = 0, sum = 0;
  parallel_for(100, 1, 3, [&]() -> trainer::LoopBody {
    ++made;
    return [&, calls = 0](int64_t begin, int64_t) mutable {
      ++calls;
      sum += static_cast<int>(begin);
      CHECK(calls <= 100);
    };
  });
  CHECK(made == 3);
  CHECK(sum == 99 * 100 / 2);
}
