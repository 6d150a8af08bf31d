#include "core/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/math.h"

namespace trainer {

void parallel_for(int64_t n, int64_t chunk, int64_t num_threads, const LoopBody& body) {
  parallel_for(n, chunk, num_threads, [&] { return LoopBody(std::ref(body)); });
}

void parallel_for(int64_t n, int64_t chunk, int64_t num_threads, const std::function<LoopBody()>& make_body) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  int64_t error_begin = n;
  const auto work = [&] {
    int64_t begin = 0;
    try {
      const LoopBody body = make_body();
      while ((begin = next.fetch_add(chunk)) < n) body(begin, std::min(begin + chunk, n));
    } catch (...) {
      next = n;
      const std::lock_guard lock(mutex);
      if (begin < error_begin) {
        error = std::current_exception();
        error_begin = begin;
      }
    }
  };
  {
    std::vector<std::jthread> others;  // joined also when another cannot be started
    for (int64_t i = std::min(num_threads, ceil_div(n, chunk)); i > 1; --i) others.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trainer
