#include "embedding/initialize.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "core/math.h"
#include "core/mix64.h"
#include "kernels/parallel.h"
#include "kernels/philox.h"

namespace trainer::embedding {
namespace {

constexpr int64_t kChunkBytes = 1 << 22;  // of a device's table that is made on the host

uint64_t key_of(const std::string& table, uint64_t seed) {
  uint64_t key = mix64(seed);
  for (const unsigned char c : table) key = mix64(key ^ c);
  return key;
}

// A Philox block gives four columns.
void fill_row(float* to, int64_t cols, uint64_t key, uint64_t row, uint32_t first_block, float bound) {
  const auto draw = [&](uint32_t block) {
    return kernels::philox4x32({{static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), block, 0}},
                               static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  };
  const auto uniform = [&](uint32_t word) {  // 24 bits: exact in fp32
    return (static_cast<float>(word >> 8) * 0x1p-23F - 1) * bound;
  };
  int64_t c = 0;
  for (; c + 4 <= cols; c += 4) {
    const kernels::PhiloxBlock random = draw(first_block + static_cast<uint32_t>(c / 4));
    for (int64_t i = 0; i < 4; ++i) to[c + i] = uniform(random.words[i]);
  }
  if (c == cols) return;
  const kernels::PhiloxBlock random = draw(first_block + static_cast<uint32_t>(c / 4));
  for (int64_t i = 0; c + i < cols; ++i) to[c + i] = uniform(random.words[i]);
}

}  // namespace

void initialize(const at::Tensor& weight, const std::string& table, uint64_t seed, int64_t total_rows,
                int64_t row_begin, int64_t col_begin) {
  const int64_t rows = weight.size(0), cols = weight.size(1);
  if (weight.numel() == 0) return;
  const uint64_t key = key_of(table, seed);
  const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(total_rows)));
  const bool in_place = weight.is_cpu() && weight.scalar_type() == at::kFloat && weight.is_contiguous();
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / 4 / cols);
  const auto fill_rows = [&](float* to, int64_t first, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      fill_row(to + r * cols, cols, key, static_cast<uint64_t>(row_begin + first + r),
               static_cast<uint32_t>(col_begin / 4), bound);
    }
  };
  const auto fill_chunk = [&](int64_t i) {
    const int64_t first = i * chunk, count = std::min(chunk, rows - first);
    if (in_place) return fill_rows(weight.mutable_data_ptr<float>() + first * cols, first, count);
    const at::Tensor made = at::empty({count, cols});
    fill_rows(made.mutable_data_ptr<float>(), first, count);
    weight.narrow(0, first, count).copy_(made);
  };
  if (weight.is_cpu()) {
    kernels::parallel_items(ceil_div(rows, chunk), fill_chunk);
  } else {
    for (int64_t i = 0; i < ceil_div(rows, chunk); ++i) fill_chunk(i);
  }
}

}  // namespace trainer::embedding
