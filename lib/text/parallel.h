#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>

namespace trainer::text {

struct Failure {
  size_t index;
  std::exception_ptr error;
};

// Calls work(i) for each i < size on `num_threads` >= 1 threads, each of which makes its own `work` (with its
// buffers) and takes `chunk` indices at a time, in order. Returns the failure of the smallest index, whatever
// the threads' timing; what is after it may not have been done.
std::optional<Failure> parallel_for(size_t size, size_t chunk, int64_t num_threads,
                                    const std::function<std::function<void(size_t)>()>& make_work);

}  // namespace trainer::text
