#pragma once

#include "kernels/cpu/gemm.h"

// Attention of one head over one sequence of T tokens, in fp32 within L1 and L2. As in flash attention (Dao
// et al., 2022) only the log-sum-exp of a row of scores is kept; backward computes the weights again, a block
// of queries at a time. Columns are padded to whole panels, with zeros.

namespace trainer::kernels::TRAINER_CPU_ISA {

constexpr int64_t kQueryBlock = 8 * kStripRows;

TRAINER_INLINE int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

static int64_t attention_scratch(int64_t length, int64_t head_dim) {
  const int64_t t = round_up(length, kGroup), d = round_up(head_dim, kPanelColumns);
  // Panels and rows of q, k, v, dout, and the gradients of k, v; scores and weights of a block; dropout bits.
  return 8 * t * d + 2 * kQueryBlock * t + 5 * kQueryBlock * d + t;
}

// Rows of T to fp32, rows `out_stride` apart and zero from head_dim on; times `scale`.
template <class T>
TRAINER_INLINE void widen_rows(const T* from, int64_t stride, int64_t rows, int64_t head_dim, float scale,
                               float* out, int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    float* to = out + row * out_stride;
    for (int64_t i = head_dim / kLanes * kLanes; i < out_stride; i += kLanes) store(to + i, Vec{});
    for_vectors(
        head_dim, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          store_some(to + i, load_some(from + row * stride + i) * scale);
        });
  }
}
template <class T>
TRAINER_INLINE void narrow_rows(const float* from, int64_t from_stride, int64_t rows, int64_t head_dim,
                                T* out, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for_vectors(
        head_dim, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
          store_some(out + row * stride + i, load_some(from + row * from_stride + i));
        });
  }
}

// C [rows, panels * kPanelColumns] (+)= A B; A's element (r, s) at a + r * a_row + s * a_step.
TRAINER_INLINE void product(int64_t rows, int64_t panels, int64_t steps, const float* a, int64_t a_row,
                            int64_t a_step, const float* b_panels, int64_t panel_size, float* c, int64_t ldc,
                            bool accumulate) {
  for (int64_t row = 0; row < rows; row += kStripRows) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      multiply_rows<FloatStep>(rows - row < kStripRows ? rows - row : kStripRows,
                               reinterpret_cast<const char*>(a + row * a_row), 4 * a_row, 4 * a_step,
                               b_panels + panel * panel_size, steps, c + row * ldc + panel * kPanelColumns,
                               ldc, accumulate);
    }
  }
}

template <class T>
struct AttentionHead {
  const AttentionParams<T>& p;
  int64_t start, length, head;
  int64_t channels = p.num_heads * p.head_dim;
  int64_t key_panels = (length + kPanelColumns - 1) / kPanelColumns, keys = key_panels * kPanelColumns;
  int64_t dim_panels = (p.head_dim + kPanelColumns - 1) / kPanelColumns, dim = dim_panels * kPanelColumns;
  float scale = 1.0F / __builtin_sqrtf(static_cast<float>(p.head_dim));

  const T* rows_of(int64_t part, int64_t row) const {
    return p.qkv + (start + row) * p.qkv_stride + part * channels + head * p.head_dim;
  }
  void fill_dropout(int64_t row, uint16_t* bits) const {
    const DropoutRow r{static_cast<uint64_t>(p.dropout.row_keys[start + row]), p.dropout.site,
                       static_cast<uint32_t>(head)};
    for (int64_t i = 0; i < length; i += kGroup) fill_group(r, static_cast<uint32_t>(i / kGroup), bits + i);
  }
};

template <class T>
void attention_forward(const AttentionParams<T>& p, int64_t start, int64_t length, int64_t head,
                       float* scratch) {
  const AttentionHead<T> h{p, start, length, head};
  float* const k_panels = scratch;                    // [key panels][head_dim][kPanelColumns]
  float* const v_panels = k_panels + h.keys * h.dim;  // [dim panels][length][kPanelColumns]
  float* const q = v_panels + length * h.dim;         // a strip's queries [kStripRows, dim]
  float* const out = q + kStripRows * h.dim;          // [kStripRows, dim]
  float* const weights = out + kStripRows * h.dim;    // [kStripRows, keys]
  auto* const bits = reinterpret_cast<uint16_t*>(weights + kStripRows * h.keys);
  for (int64_t panel = 0; panel < h.key_panels; ++panel) {
    pack_panel_transposed<float>(h.rows_of(1, 0), p.qkv_stride, p.head_dim, length, panel * kPanelColumns,
                                 k_panels + panel * p.head_dim * kPanelColumns);
  }
  for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
    pack_panel<float>(h.rows_of(2, 0), p.qkv_stride, length, p.head_dim, panel * kPanelColumns,
                      v_panels + panel * length * kPanelColumns);
  }
  for (int64_t first = 0; first < length; first += kStripRows) {
    const int64_t rows = length - first < kStripRows ? length - first : kStripRows;
    widen_rows(h.rows_of(0, first), p.qkv_stride, rows, p.head_dim, h.scale, q, h.dim);
    product(rows, h.key_panels, p.head_dim, q, h.dim, 1, k_panels, p.head_dim * kPanelColumns, weights,
            h.keys, false);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = weights + r * h.keys;
      for (int64_t i = length; i < h.keys; ++i) row[i] = -1e30F;
      Vec largest = load(row), total{};
      for (int64_t i = kLanes; i < h.keys; i += kLanes) {
        const Vec v = load(row + i);
        largest = v > largest ? v : largest;
      }
      const float top = max(largest);
      for (int64_t i = 0; i < h.keys; i += kLanes) {
        const Vec v = load(row + i);
        const Vec e = v < splat(-1e29F) ? Vec{} : exp(v - top);
        store(row + i, e);
        total += e;
      }
      const float denominator = sum(total);
      p.lse[(start + first + r) * p.num_heads + head] = top + __builtin_logf(denominator);
      const float inverse = 1.0F / denominator;
      if (p.dropout.threshold > 0) h.fill_dropout(first + r, bits);
      for (int64_t i = 0; i < h.keys; i += kLanes) {
        Vec v = load(row + i) * inverse;
        if (p.dropout.threshold > 0) v *= dropout_factor(bits + i, p.dropout.threshold, p.dropout.scale);
        store(row + i, v);
      }
    }
    product(rows, h.dim_panels, length, weights, h.keys, 1, v_panels, length * kPanelColumns, out, h.dim,
            false);
    narrow_rows(out, h.dim, rows, p.head_dim, p.out + (start + first) * h.channels + head * p.head_dim,
                h.channels);
  }
}

template <class T>
void attention_backward(const AttentionParams<T>& p, int64_t start, int64_t length, int64_t head,
                        float* scratch) {
  const AttentionHead<T> h{p, start, length, head};
  float* next = scratch;
  const auto take = [&next](int64_t n) { return next += n, next - n; };
  float* const kt_panels = take(h.keys * h.dim);  // of k^T and v^T: [key panels][head_dim][kPanelColumns]
  float* const vt_panels = take(h.keys * h.dim);
  float* const k_panels = take(length * h.dim);  // of k: [dim panels][length][kPanelColumns]
  float* const dk = take(length * h.dim);        // [length, dim]
  float* const dv = take(length * h.dim);
  float* const q = take(kQueryBlock * h.dim);  // of a block of queries: [kQueryBlock, dim]
  float* const dout = take(kQueryBlock * h.dim);
  float* const dq = take(kQueryBlock * h.dim);
  float* const q_panels = take(kQueryBlock * h.dim);  // [dim panels][block][kPanelColumns]
  float* const dout_panels = take(kQueryBlock * h.dim);
  float* const weights = take(kQueryBlock * h.keys);  // after dropout
  float* const dscores = take(kQueryBlock * h.keys);
  auto* const bits = reinterpret_cast<uint16_t*>(next);

  const int64_t transposed_size = p.head_dim * kPanelColumns;
  for (int64_t panel = 0; panel < h.key_panels; ++panel) {
    const int64_t column = panel * kPanelColumns;
    pack_panel_transposed<float>(h.rows_of(1, 0), p.qkv_stride, p.head_dim, length, column,
                                 kt_panels + panel * transposed_size);
    pack_panel_transposed<float>(h.rows_of(2, 0), p.qkv_stride, p.head_dim, length, column,
                                 vt_panels + panel * transposed_size);
  }
  for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
    pack_panel<float>(h.rows_of(1, 0), p.qkv_stride, length, p.head_dim, panel * kPanelColumns,
                      k_panels + panel * length * kPanelColumns);
  }
  T* const dq_out = p.dqkv + start * 3 * h.channels + head * p.head_dim;
  for (int64_t first = 0; first < length; first += kQueryBlock) {
    const int64_t rows = length - first < kQueryBlock ? length - first : kQueryBlock;
    const int64_t offset = (start + first) * h.channels + head * p.head_dim;
    widen_rows(h.rows_of(0, first), p.qkv_stride, rows, p.head_dim, h.scale, q, h.dim);
    widen_rows(p.dout + offset, h.channels, rows, p.head_dim, 1.0F, dout, h.dim);
    for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
      const int64_t size = rows * kPanelColumns;
      pack_panel<float>(q, h.dim, rows, h.dim, panel * kPanelColumns, q_panels + panel * size);
      pack_panel<float>(dout, h.dim, rows, h.dim, panel * kPanelColumns, dout_panels + panel * size);
    }
    product(rows, h.key_panels, p.head_dim, q, h.dim, 1, kt_panels, transposed_size, weights, h.keys, false);
    product(rows, h.key_panels, p.head_dim, dout, h.dim, 1, vt_panels, transposed_size, dscores, h.keys,
            false);
    for (int64_t r = 0; r < rows; ++r) {
      float *weight = weights + r * h.keys, *dscore = dscores + r * h.keys;
      const float lse = p.lse[(start + first + r) * p.num_heads + head];
      if (p.dropout.threshold > 0) h.fill_dropout(first + r, bits);
      // Not from the rounded output, as flash attention does: a sequence of one token has exactly zero
      // gradients.
      Vec total{};
      for (int64_t i = 0; i < h.keys; i += kLanes) {
        const Vec v = exp(load(weight + i) - lse);
        Vec d = load(dscore + i);  // zero in the padding
        if (p.dropout.threshold > 0) d *= dropout_factor(bits + i, p.dropout.threshold, p.dropout.scale);
        total += v * d;
        store(weight + i, v);
        store(dscore + i, d);
      }
      const float mean = sum(total);
      for (int64_t i = 0; i < h.keys; i += kLanes) {
        const Vec v = load(weight + i);
        store(dscore + i, v * (load(dscore + i) - mean));
        if (p.dropout.threshold > 0) {
          store(weight + i, v * dropout_factor(bits + i, p.dropout.threshold, p.dropout.scale));
        }
      }
    }
    product(rows, h.dim_panels, length, dscores, h.keys, 1, k_panels, length * kPanelColumns, dq, h.dim,
            false);
    product(length, h.dim_panels, rows, weights, 1, h.keys, dout_panels, rows * kPanelColumns, dv, h.dim,
            first > 0);
    product(length, h.dim_panels, rows, dscores, 1, h.keys, q_panels, rows * kPanelColumns, dk, h.dim,
            first > 0);
    for (int64_t i = 0; i < rows * h.dim; i += kLanes) store(dq + i, load(dq + i) * h.scale);
    narrow_rows(dq, h.dim, rows, p.head_dim, dq_out + first * 3 * h.channels, 3 * h.channels);
  }
  narrow_rows(dk, h.dim, length, p.head_dim, dq_out + h.channels, 3 * h.channels);
  narrow_rows(dv, h.dim, length, p.head_dim, dq_out + 2 * h.channels, 3 * h.channels);
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
