#include "kernels/parallel.h"

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace trainer;

TEST_CASE("Items run each once, on as many threads as ATen has, and their exceptions reach the caller") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> counts(50);
  kernels::parallel_items(50, [&](int64_t i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // lets the other thread come
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    ++counts[static_cast<size_t>(i)];
  });
  CHECK(threads.size() == 2);
  CHECK(counts == std::vector<int>(50, 1));
  CHECK_THROWS_WITH(kernels::parallel_items(8,
                                            [](int64_t i) {
                                              if (i == 5) throw std::runtime_error("item 5");
                                            }),
                    "item 5");
  kernels::parallel_items(0, [](int64_t) { FAIL("no items"); });
  at::set_num_threads(before);
}
