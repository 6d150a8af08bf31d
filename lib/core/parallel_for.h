#pragma once

#include <cstdint>
#include <functional>

namespace trainer {

// Calls body(begin, end) for pieces of [0, n), each at most `chunk` long, on `num_threads` threads, at least this one
// among them; pieces are begun in order. Throws what the earliest of the pieces that fail threw; those not yet begun are left out.
using LoopBody = std::function<void(int64_t begin, int64_t end)>;
void parallel_for(int64_t n, int64_t chunk, int64_t num_threads, const LoopBody& body);
// The same with a body that each thread makes for itself, with its buffers.
void parallel_for(int64_t n, int64_t chunk, int64_t num_threads, const std::function<LoopBody()>& make_body);

}  // namespace trainer
