#include "data/prefetcher.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>

using trainer::data::Prefetcher;

namespace {

// Tasks that give 0, 1, 2, ...; every fifth throws its number. The early ones take longest, so that they end
// out of order.
std::function<std::function<int()>()> counting(std::atomic<int>& made) {
  return [&made] {
    const int number = made++;
    return [number] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * (4 - number % 4)));
      if (number % 5 == 4) throw std::runtime_error(std::to_string(number));
      return number;
    };
  };
}

}  // namespace

TEST_CASE("results and exceptions come in order whatever the number of threads") {
  for (const int64_t threads : {0, 1, 2, 4}) {
    for (const int64_t depth : {1, 3, 16}) {
      std::atomic<int> made = 0;
      Prefetcher<int> prefetcher(counting(made), threads, depth);
      for (int i = 0; i < 20; ++i) {
        if (i % 5 == 4) {
          REQUIRE_THROWS_WITH(prefetcher.next(), std::to_string(i));
        } else {
          REQUIRE(prefetcher.next() == i);
        }
        REQUIRE(made - (i + 1) <= depth);
      }
    }
  }
}

TEST_CASE("an exception of making a task comes at its place") {
  int made = 0;
  Prefetcher<int> prefetcher(
      [&]() -> std::function<int()> {
        if (++made == 3) throw std::runtime_error("third");
        return [number = made] { return number; };
      },
      2, 4);
  CHECK(prefetcher.next() == 1);
  CHECK(prefetcher.next() == 2);
  CHECK_THROWS_WITH(prefetcher.next(), "third");
  CHECK(prefetcher.next() == 4);
}

TEST_CASE("a prefetcher ends cleanly in any state") {
  for (int taken = 0; taken < 8; ++taken) {
    for (const int64_t threads : {0, 1, 4}) {
      std::atomic<int> made = 0;
      Prefetcher<int> prefetcher(counting(made), threads, 3);
      for (int i = 0; i < taken && i % 5 != 4; ++i) prefetcher.next();
    }
  }
}
