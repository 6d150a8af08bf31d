#include "text/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace trainer::text {

std::optional<Failure> parallel_for(size_t size, size_t chunk, int64_t num_threads,
                                    const std::function<std::function<void(size_t)>()>& make_work) {
  const size_t num_chunks = (size + chunk - 1) / chunk;
  const size_t threads =
      std::clamp<size_t>(static_cast<size_t>(num_threads), 1, std::max<size_t>(num_chunks, 1));
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Failure> first;
  const auto run = [&] {
    size_t i = 0;
    try {
      const std::function<void(size_t)> work = make_work();
      for (size_t begin; (begin = chunk * next++) < size;) {
        const size_t end = std::min(begin + chunk, size);
        for (i = begin; i < end; ++i) work(i);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first || i < first->index) first = Failure{i, std::current_exception()};
      next = num_chunks;  // earlier chunks are all taken
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t t = 1; t < threads; ++t) others.emplace_back(run);
    run();
  }
  return first;
}

}  // namespace trainer::text
