#include "kernels/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>

#ifndef _OPENMP
#error \
    "compile with OpenMP: at::parallel_for, like this file, is a plain loop without it, and nothing says so"
#endif

namespace trainer::kernels {

void parallel_items(int64_t n, const std::function<void(int64_t)>& body) {
  const auto threads =
      static_cast<int>(std::min<int64_t>(at::in_parallel_region() ? 1 : at::get_num_threads(), n));
  std::atomic<int64_t> next{0};
  std::atomic_flag failed;
  std::exception_ptr error;
#pragma omp parallel num_threads(threads) if (threads > 1)
  try {
    for (int64_t i = next++; i < n; i = next++) body(i);
  } catch (...) {  // must not leave the parallel region; the first one is thrown after it
    if (!failed.test_and_set()) error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trainer::kernels
