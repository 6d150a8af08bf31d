#pragma once

#include <cstdint>

// The tables' CPU kernels: plain pointers and a table of functions for each instruction set, as kernels/cpu. Callers split the
// work over threads; every bag and every row is the work of one call, in a fixed order, so results don't depend on how.

namespace trainer::embedding {

struct Fp16 {
  uint16_t bits;
};

// One feature's bags.
struct PoolParams {
  const void* rows;  // [rows, dim]
  int64_t dim;
  const int64_t* ids;      // all bags'
  const int64_t* offsets;  // [B + 1], into ids and weights
  const float* weights;    // or null
  int64_t num_bags;        // B
  float* out;              // [B, dim], rows out_stride apart
  int64_t out_stride;
};

// An id of a table: its row, and the bag that it is in as (slot, sample): row << row_shift | slot << slot_shift | sample.
struct Entry {
  uint64_t key;
};
struct WeightedEntry {
  uint64_t key;
  float weight;
};
// A feature of the table in one of the step's lookups: its columns of the gradient of its samples.
struct Slot {
  const float* gradient;
  int64_t stride;
};

enum class RowUpdate { kRowwiseAdagrad, kAdagrad, kSgd, kAdam };

// One table's step.
struct UpdateParams {
  void* rows;  // [rows, dim]
  int64_t dim;
  float* sum;                   // Adagrad: [rows, dim]; row-wise: [rows]; else null
  int64_t sum_dim;              // its columns, dim or 1
  float *exp_avg, *exp_avg_sq;  // Adam: [rows, dim]; else null
  const Slot* slots;
  int row_shift, slot_shift;
  float gradient_scale, lr, eps, weight_decay;
  float beta1, beta2;    // Adam
  float rest1, rest2;    // 1 - beta, not from rounded ones
  float scale1, scale2;  // 1 / (1 - beta^t)
  int64_t total_dim;     // columns that row-wise Adagrad's mean is over
  // Stochastic rounding (fp16 and bf16): Philox's key and counter, and the place in the whole table.
  bool stochastic;
  uint64_t seed;
  uint32_t table, step;
  int64_t row_begin, column_begin;
};

// For rows of one type.
struct RowKernels {
  // Bags [begin, end).
  void (*pool)(const PoolParams&, int64_t begin, int64_t end);
  // Updates the rows of n entries, ordered by row and within a row as their gradients are to be summed. `scratch`:
  // update_scratch(dim) floats. row_sums (row-wise Adagrad only) may be null; else it has the sum of squares of each row in turn.
  void (*update[4])(const UpdateParams&, const Entry*, int64_t n, float* scratch, const float* row_sums);
  void (*update_weighted[4])(const UpdateParams&, const WeightedEntry*, int64_t n, float* scratch,
                             const float* row_sums);
  // Writes those sums, of this table's columns.
  void (*sum_squares)(const UpdateParams&, const Entry*, int64_t n, float* scratch, float* row_sums);
  void (*sum_squares_weighted)(const UpdateParams&, const WeightedEntry*, int64_t n, float* scratch,
                               float* row_sums);
};

struct EmbeddingKernels {
  const char* isa;
  RowKernels fp32, fp16, bf16;
};

// Floats: a row's gradient, and its random bits in groups of 128 columns.
constexpr int64_t update_scratch(int64_t dim) {
  return (dim + 15) / 16 * 16 + (dim / 128 + 3) * 64;
}

// Of the instruction set that kernels::cpu_kernels() has chosen.
const EmbeddingKernels& embedding_kernels();

}  // namespace trainer::embedding
