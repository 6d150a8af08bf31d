#include "kernels/cuda/dropout.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/philox.h"

namespace trainer::kernels::cuda {

// A thread draws one Philox block: 8 columns, 16 apart (philox.h).
template <class T>
__global__ void dropout_kernel(const T* x, T* y, int64_t rows, int64_t columns, int64_t blocks_a_row,
                               const int64_t* row_keys, uint32_t site, uint32_t threshold, float scale) {
  const int64_t thread = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t row = thread / blocks_a_row, block = thread % blocks_a_row;
  if (row >= rows) return;
  const auto key = static_cast<uint64_t>(row_keys[row]);
  const PhiloxBlock random = philox4x32({{static_cast<uint32_t>(block), 0, site, 0}},
                                        static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  for (int half = 0; half < 8; ++half) {
    const int64_t column = block / 16 * 128 + half * 16 + block % 16;
    if (column >= columns) return;
    const uint32_t bits = random.words[half / 2] >> (half % 2 * 16) & 0xFFFF;
    const float value = static_cast<float>(x[row * columns + column]);
    y[row * columns + column] = static_cast<T>(bits >= threshold ? value * scale : 0.0F);
  }
}

template <class T>
int dropout(const void* x, void* y, int64_t rows, int64_t columns, const int64_t* row_keys, uint32_t site,
            double p, void* stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  const uint32_t threshold = dropout_threshold(p);
  const int64_t blocks_a_row = (columns + 127) / 128 * 16;
  constexpr int kThreads = 256;
  const int64_t grid = (rows * blocks_a_row + kThreads - 1) / kThreads;
  dropout_kernel<T><<<static_cast<unsigned>(grid), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const T*>(x), static_cast<T*>(y), rows, columns, blocks_a_row, row_keys, site, threshold,
      dropout_scale(threshold));
  return cudaGetLastError();
}

template int dropout<float>(const void*, void*, int64_t, int64_t, const int64_t*, uint32_t, double, void*);
template int dropout<__half>(const void*, void*, int64_t, int64_t, const int64_t*, uint32_t, double, void*);
template int dropout<__nv_bfloat16>(const void*, void*, int64_t, int64_t, const int64_t*, uint32_t, double,
                                    void*);

}  // namespace trainer::kernels::cuda
