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
  // Panels and rows of k and v, and their gradients; weights and their gradients, of a block of queries; its
  // rows and panels; dropout bits.
  return 6 * t * d + 2 * kQueryBlock * t + 5 * kQueryBlock * d + t;
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

// Rotary embedding: out = from turned by cos_sin's angles times `turn` (1 or -1: back), times `scale`. In place
// or not.
template <class From>
TRAINER_INLINE void rotate(const From* from, const float* cos_sin, int64_t head_dim, float turn, float scale,
                           float* out) {
  const int64_t half = head_dim / 2;
  for_vectors(
      half, [&](int64_t i, auto load_some, auto store_some) __attribute__((always_inline)) {
        const Vec a = load_some(from + i), b = load_some(from + half + i);
        const Vec c = load_some(cos_sin + i) * scale, s = load_some(cos_sin + half + i) * (scale * turn);
        store_some(out + i, a * c - b * s);
        store_some(out + half + i, b * c + a * s);
      });
}

// One strip of C [rows <= kStripRows, panels * kPanelColumns] (+)= A B; A's element (r, s) at a + r * a_row + s
// * a_step.
TRAINER_INLINE void product(int64_t rows, int64_t panels, int64_t steps, const float* a, int64_t a_row,
                            int64_t a_step, const float* b_panels, int64_t panel_size, float* c, int64_t ldc,
                            bool accumulate) {
  for (int64_t panel = 0; panel < panels; ++panel) {
    multiply_rows<FloatStep>(rows, reinterpret_cast<const char*>(a), 4 * a_row, 4 * a_step,
                             b_panels + panel * panel_size, steps, c + panel * kPanelColumns, ldc,
                             accumulate);
  }
}

TRAINER_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
TRAINER_INLINE int64_t panels_of(int64_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}

// One key and value head over one sequence.
template <class T>
struct AttentionHead {
  const AttentionParams<T>& p;
  int64_t start, length, kv_head;
  int64_t group = p.num_heads / p.num_kv_heads;  // query heads
  int64_t key_panels = panels_of(length), keys = key_panels * kPanelColumns;
  int64_t dim_panels = panels_of(p.head_dim), dim = dim_panels * kPanelColumns;
  int64_t row_channels = (p.num_heads + 2 * p.num_kv_heads) * p.head_dim;
  float scale = 1.0F / __builtin_sqrtf(static_cast<float>(p.head_dim));

  // Heads of qkv's rows: queries, then keys, then values.
  int64_t key_head() const { return p.num_heads + kv_head; }
  int64_t value_head() const { return p.num_heads + p.num_kv_heads + kv_head; }
  const T* rows_of(int64_t head, int64_t row) const {
    return p.qkv + (start + row) * p.qkv_stride + head * p.head_dim;
  }
  T* gradient_of(int64_t head, int64_t row) const {
    return p.dqkv + (start + row) * row_channels + head * p.head_dim;
  }
  int64_t output_at(int64_t head, int64_t row) const {
    return ((start + row) * p.num_heads + head) * p.head_dim;
  }
  const float* cos_sin_of(int64_t row) const { return p.cos_sin + p.position_ids[start + row] * p.head_dim; }

  // How many keys a query sees; and all queries of [first, first + rows).
  int64_t visible(int64_t row) const { return p.is_causal ? row + 1 : length; }
  int64_t visible_to(int64_t first, int64_t rows) const { return visible(first + rows - 1); }

  // Rows of queries or keys, rotated, times `factor`.
  void read(int64_t head, int64_t first, int64_t rows, float factor, float* out) const {
    if (p.cos_sin == nullptr) {
      widen_rows(rows_of(head, first), p.qkv_stride, rows, p.head_dim, factor, out, dim);
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* to = out + row * dim;
      for (int64_t i = p.head_dim / kLanes * kLanes; i < dim; i += kLanes) store(to + i, Vec{});
      rotate(rows_of(head, first + row), cos_sin_of(first + row), p.head_dim, 1.0F, factor, to);
    }
  }
  // The gradient of what `read` gave: overwrites `gradient`.
  void write_gradient(int64_t head, int64_t first, int64_t rows, float* gradient) const {
    for (int64_t row = 0; row < rows && p.cos_sin != nullptr; ++row) {
      float* g = gradient + row * dim;
      rotate(g, cos_sin_of(first + row), p.head_dim, -1.0F, 1.0F, g);
    }
    narrow_rows(gradient, dim, rows, p.head_dim, gradient_of(head, first), row_channels);
  }

  void fill_dropout(int64_t head, int64_t row, uint16_t* bits) const {
    const DropoutRow r{static_cast<uint64_t>(p.dropout.row_keys[start + row]), p.dropout.site,
                       static_cast<uint32_t>(head)};
    for (int64_t i = 0; i < visible(row); i += kGroup) {
      fill_group(r, static_cast<uint32_t>(i / kGroup), bits + i);
    }
  }
};

// Scores of a row of queries to weights, in `columns` (whole vectors): softmax, then dropout. Returns the
// log-sum-exp.
template <class T>
TRAINER_INLINE float softmax_row(const AttentionHead<T>& h, int64_t head, int64_t row, int64_t columns,
                                 float* scores, uint16_t* bits) {
  const DropoutParams& dropout = h.p.dropout;
  const int64_t visible = h.visible(row);
  const Vec lowest = splat(-1e30F);
  Vec largest = lowest, total{};
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Vec v = is_below(i, visible) ? load(scores + i) : lowest;
    largest = v > largest ? v : largest;
  }
  const float top = max(largest);
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Vec e = is_below(i, visible) ? exp(load(scores + i) - top) : Vec{};
    store(scores + i, e);
    total += e;
  }
  const float denominator = sum(total), inverse = 1.0F / denominator;
  if (dropout.threshold > 0) h.fill_dropout(head, row, bits);
  for (int64_t i = 0; i < columns; i += kLanes) {
    Vec v = load(scores + i) * inverse;
    if (dropout.threshold > 0) v *= dropout_factor(bits + i, dropout.threshold, dropout.scale);
    store(scores + i, v);
  }
  return top + __builtin_logf(denominator);
}

template <class T>
void attention_forward(const AttentionParams<T>& p, int64_t start, int64_t length, int64_t kv_head,
                       float* scratch) {
  const AttentionHead<T> h{p, start, length, kv_head};
  float* const k = scratch;                           // [length, dim]
  float* const k_panels = k + length * h.dim;         // [key panels][head_dim][kPanelColumns]
  float* const v_panels = k_panels + h.keys * h.dim;  // [dim panels][length][kPanelColumns]
  float* const q = v_panels + length * h.dim;         // a strip's queries [kStripRows, dim]
  float* const out = q + kStripRows * h.dim;          // [kStripRows, dim]
  float* const weights = out + kStripRows * h.dim;    // [kStripRows, keys]
  auto* const bits = reinterpret_cast<uint16_t*>(weights + kStripRows * h.keys);
  const int64_t transposed_size = p.head_dim * kPanelColumns;
  h.read(h.key_head(), 0, length, 1.0F, k);
  for (int64_t panel = 0; panel < h.key_panels; ++panel) {
    pack_panel_transposed<float>(k, h.dim, p.head_dim, length, panel * kPanelColumns,
                                 k_panels + panel * transposed_size);
  }
  for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
    pack_panel<float>(h.rows_of(h.value_head(), 0), p.qkv_stride, length, p.head_dim, panel * kPanelColumns,
                      v_panels + panel * length * kPanelColumns);
  }
  for (int64_t head = kv_head * h.group; head < (kv_head + 1) * h.group; ++head) {
    for (int64_t first = 0; first < length; first += kStripRows) {
      const int64_t rows = least(kStripRows, length - first), visible = h.visible_to(first, rows);
      const int64_t panels = panels_of(visible);
      h.read(head, first, rows, h.scale, q);
      product(rows, panels, p.head_dim, q, h.dim, 1, k_panels, transposed_size, weights, h.keys, false);
      for (int64_t r = 0; r < rows; ++r) {
        p.lse[(start + first + r) * p.num_heads + head] =
            softmax_row(h, head, first + r, panels * kPanelColumns, weights + r * h.keys, bits);
      }
      product(rows, h.dim_panels, visible, weights, h.keys, 1, v_panels, length * kPanelColumns, out, h.dim,
              false);
      narrow_rows(out, h.dim, rows, p.head_dim, p.out + h.output_at(head, first), p.num_heads * p.head_dim);
    }
  }
}

// A row of scores and of gradients of weights to weights after dropout and gradients of scores.
template <class T>
TRAINER_INLINE void softmax_row_backward(const AttentionHead<T>& h, int64_t head, int64_t row,
                                         int64_t columns, float* weights, float* gradients, uint16_t* bits) {
  const DropoutParams& dropout = h.p.dropout;
  const int64_t visible = h.visible(row);
  const float lse = h.p.lse[(h.start + row) * h.p.num_heads + head];
  if (dropout.threshold > 0) h.fill_dropout(head, row, bits);
  // Not from the rounded output, as flash attention does: a sequence of one token has exactly zero gradients.
  Vec total{};
  for (int64_t i = 0; i < columns; i += kLanes) {
    const IntVec is_visible = is_below(i, visible);
    const Vec v = is_visible ? exp(load(weights + i) - lse) : Vec{};
    Vec d = is_visible ? load(gradients + i) : Vec{};
    if (dropout.threshold > 0) d *= dropout_factor(bits + i, dropout.threshold, dropout.scale);
    total += v * d;
    store(weights + i, v);
    store(gradients + i, d);
  }
  const float mean = sum(total);
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Vec v = load(weights + i);
    store(gradients + i, v * (load(gradients + i) - mean));
    if (dropout.threshold > 0) {
      store(weights + i, v * dropout_factor(bits + i, dropout.threshold, dropout.scale));
    }
  }
}

template <class T>
void attention_backward(const AttentionParams<T>& p, int64_t start, int64_t length, int64_t kv_head,
                        float* scratch) {
  const AttentionHead<T> h{p, start, length, kv_head};
  float* next = scratch;
  const auto take = [&next](int64_t n) { return next += n, next - n; };
  float* const kt_panels = take(h.keys * h.dim);  // of k^T and v^T: [key panels][head_dim][kPanelColumns]
  float* const vt_panels = take(h.keys * h.dim);
  float* const k_panels = take(length * h.dim);  // of k: [dim panels][length][kPanelColumns]
  float* const dk = take(length * h.dim);        // [length, dim]; first k itself
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
  h.read(h.key_head(), 0, length, 1.0F, dk);
  for (int64_t panel = 0; panel < h.key_panels; ++panel) {
    const int64_t column = panel * kPanelColumns;
    pack_panel_transposed<float>(dk, h.dim, p.head_dim, length, column, kt_panels + panel * transposed_size);
    pack_panel_transposed<float>(h.rows_of(h.value_head(), 0), p.qkv_stride, p.head_dim, length, column,
                                 vt_panels + panel * transposed_size);
  }
  for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
    pack_panel<float>(dk, h.dim, length, h.dim, panel * kPanelColumns,
                      k_panels + panel * length * kPanelColumns);
  }
  for (int64_t i = 0; i < length * h.dim; i += kLanes) store(dk + i, Vec{}), store(dv + i, Vec{});

  const int64_t num_blocks = (length + kQueryBlock - 1) / kQueryBlock;
  for (int64_t block = 0; block < h.group * num_blocks; ++block) {
    const int64_t head = kv_head * h.group + block / num_blocks, first = block % num_blocks * kQueryBlock;
    const int64_t rows = least(kQueryBlock, length - first);
    h.read(head, first, rows, h.scale, q);
    widen_rows(p.dout + h.output_at(head, first), p.num_heads * p.head_dim, rows, p.head_dim, 1.0F, dout,
               h.dim);
    for (int64_t panel = 0; panel < h.dim_panels; ++panel) {
      const int64_t size = rows * kPanelColumns;
      pack_panel<float>(q, h.dim, rows, h.dim, panel * kPanelColumns, q_panels + panel * size);
      pack_panel<float>(dout, h.dim, rows, h.dim, panel * kPanelColumns, dout_panels + panel * size);
    }
    for (int64_t r = 0; r < rows; r += kStripRows) {
      const int64_t strip = least(kStripRows, rows - r), visible = h.visible_to(first + r, strip);
      const int64_t panels = panels_of(visible);
      float *weight = weights + r * h.keys, *dscore = dscores + r * h.keys;
      product(strip, panels, p.head_dim, q + r * h.dim, h.dim, 1, kt_panels, transposed_size, weight, h.keys,
              false);
      product(strip, panels, p.head_dim, dout + r * h.dim, h.dim, 1, vt_panels, transposed_size, dscore,
              h.keys, false);
      for (int64_t i = 0; i < strip; ++i) {
        softmax_row_backward(h, head, first + r + i, panels * kPanelColumns, weight + i * h.keys,
                             dscore + i * h.keys, bits);
      }
      product(strip, h.dim_panels, visible, dscore, h.keys, 1, k_panels, length * kPanelColumns,
              dq + r * h.dim, h.dim, false);
    }
    for (int64_t key = 0; key < h.visible_to(first, rows); key += kStripRows) {
      // Strips of keys and of queries begin at the same rows: queries from `key` on see some of these keys.
      const int64_t strip = least(kStripRows, length - key);
      const int64_t skipped = p.is_causal && key > first ? key - first : 0, at = skipped * h.keys + key;
      const int64_t queries = rows - skipped, panel_size = rows * kPanelColumns;
      product(strip, h.dim_panels, queries, weights + at, 1, h.keys, dout_panels + skipped * kPanelColumns,
              panel_size, dv + key * h.dim, h.dim, true);
      product(strip, h.dim_panels, queries, dscores + at, 1, h.keys, q_panels + skipped * kPanelColumns,
              panel_size, dk + key * h.dim, h.dim, true);
    }
    for (int64_t i = 0; i < rows * h.dim; i += kLanes) store(dq + i, load(dq + i) * h.scale);
    h.write_gradient(head, first, rows, dq);
  }
  h.write_gradient(h.key_head(), 0, length, dk);
  narrow_rows(dv, h.dim, length, p.head_dim, h.gradient_of(h.value_head(), 0), h.row_channels);
}

}  // namespace trainer::kernels::TRAINER_CPU_ISA
