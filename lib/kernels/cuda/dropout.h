#pragma once

#include <cstdint>

namespace trainer::kernels::cuda {

// y = x, each element kept or not by philox.h's bits and scaled; x and y dense [rows, columns] of T (float,
// __half,
// __nv_bfloat16) on the device, as are row_keys [rows]. Queued on `stream` (cudaStream_t); returns the
// cudaError_t of the launch.
template <class T>
int dropout(const void* x, void* y, int64_t rows, int64_t columns, const int64_t* row_keys, uint32_t site,
            double p, void* stream);

}  // namespace trainer::kernels::cuda
