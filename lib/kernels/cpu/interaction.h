#pragma once

#include "kernels/cpu/gemm.h"

namespace trainer::kernels::TRAINER_CPU_ISA {

TRAINER_INLINE int64_t panel_size(const int64_t n, int64_t d) {
  return (n > d ? n : d) * kPanelColumns;
}
int64_t interaction_scratch(int64_t n, int64_t d) {
  return n * d + panel_size(n, d) + n * n;
}

// A record's vectors side by side.
TRAINER_INLINE const float* gather_vectors(const InteractionParams& p, int64_t record, float* out) {
  const float* embeddings = p.embeddings + record * p.num_embeddings * p.dim;
  if (!p.has_first) return embeddings;
  const size_t vector_bytes = static_cast<size_t>(p.dim) * sizeof(float);
  std::memcpy(out, p.first + record * p.dim, vector_bytes);
  std::memcpy(out + p.dim, embeddings, static_cast<size_t>(p.num_embeddings) * vector_bytes);
  return out;
}

template <class T>
TRAINER_INLINE void copy_as(const float* from, T* to, int64_t n) {
  for_vectors(
      n, [&](int64_t i, auto load_some, auto store_some)
             __attribute__((always_inline)) { store_some(to + i, load_some(from + i)); });
}

// out = [first | x_i . x_j for i > j, row by row]. As a matrix product X X^T, of whose tiles only those below the diagonal are
// computed.
template <class T>
void interaction_forward(const InteractionParams& p, T* out, int64_t first_record, int64_t last_record,
                         float* scratch) {
  const int64_t n = p.num_vectors(), d = p.dim;
  float *gathered = scratch, *panel = gathered + n * d;
  alignas(64) float tile[kStripRows * kPanelColumns];
  for (int64_t record = first_record; record < last_record; ++record) {
    const float* x = gather_vectors(p, record, gathered);
    T* record_out = out + record * p.columns();
    T* pairs = record_out;
    if (p.has_first) {
      copy_as(x, record_out, d);
      pairs += d;
    }
    for (int64_t column = 0; column < n - 1; column += kPanelColumns) {
      pack_panel_transposed<float>(x, d, d, n, column, panel);
      for (int64_t row = column - column % kStripRows; row < n; row += kStripRows) {
        const int64_t rows = n - row < kStripRows ? n - row : kStripRows;
        multiply_rows<FloatStep>(rows, reinterpret_cast<const char*>(x + row * d), 4 * d, 4, panel, d, tile,
                                 kPanelColumns, false);
        for (int64_t i = row > column ? row : column + 1; i < row + rows; ++i) {
          const int64_t columns = i - column < kPanelColumns ? i - column : kPanelColumns;
          copy_as(tile + (i - row) * kPanelColumns, pairs + i * (i - 1) / 2 + column, columns);
        }
      }
    }
  }
}

// dX = S X, S the symmetric matrix of the pairs' gradients with zeros on its diagonal.
template <class T>
void interaction_backward(const InteractionParams& p, const T* dout, float* dfirst, float* dembeddings,
                          int64_t first_record, int64_t last_record, float* scratch) {
  const int64_t n = p.num_vectors(), d = p.dim;
  float *gathered = scratch, *panel = gathered + n * d, *s = panel + panel_size(n, d);
  alignas(64) float tile[kStripRows * kPanelColumns];
  for (int64_t record = first_record; record < last_record; ++record) {
    const float* x = gather_vectors(p, record, gathered);
    const T* record_dout = dout + record * p.columns();
    const T* pairs = record_dout + (p.has_first ? d : 0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) s[i * n + j] = s[j * n + i] = to_float(*pairs++);
      s[i * n + i] = 0;
    }
    for (int64_t column = 0; column < d; column += kPanelColumns) {
      const int64_t columns = d - column < kPanelColumns ? d - column : kPanelColumns;
      pack_panel<float>(x, d, n, d, column, panel);
      for (int64_t row = 0; row < n; row += kStripRows) {
        const int64_t rows = n - row < kStripRows ? n - row : kStripRows;
        multiply_rows<FloatStep>(rows, reinterpret_cast<const char*>(s + row * n), 4 * n, 4, panel, n, tile,
                                 kPanelColumns, false);
        for (int64_t i = row; i < row + rows; ++i) {
          const float* sums = tile + (i - row) * kPanelColumns;
          if (p.has_first && i == 0) {
            float* to = dfirst + record * d + column;
            for (int64_t c = 0; c < columns; ++c) to[c] = sums[c] + to_float(record_dout[column + c]);
          } else {
            const int64_t embedding = record * p.num_embeddings + i - (p.has_first ? 1 : 0);
            copy_as(sums, dembeddings + embedding * d + column, columns);
          }
        }
      }
    }
  }
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
