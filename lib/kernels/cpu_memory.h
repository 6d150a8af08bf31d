#pragma once

#include <cstdint>

// Large tensors on a CPU, from a cache of blocks. malloc maps and unmaps each: at every step the system then
// clears gigabytes of pages (a third of a step, measured), or where malloc keeps them it holds up to half
// more than is in use.

namespace trainer::kernels {

// From now on tensors of at least 1 MiB are served so, process-wide; tensors there already are freed as they
// were made. What is held stays within 17/16 of the most that was in use at once. Calling it again does
// nothing.
void cache_cpu_memory();

// Of large tensors, in this process.
struct CpuMemory {
  int64_t in_use_bytes = 0, most_in_use_bytes = 0, cached_bytes = 0;
};
CpuMemory cpu_memory();

}  // namespace trainer::kernels
