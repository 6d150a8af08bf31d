#pragma once

#include <cstdint>

#include "kernels/activation.h"

// The CPU kernels' interface: plain pointers and a table of functions, one table an instruction set. Callers
// split the work over threads; every output element is computed by one call in a fixed order, so results
// don't depend on how.

namespace trainer::kernels {

struct Bf16 {
  uint16_t bits;
};

struct DropoutParams {
  uint32_t threshold = 0;  // 0: off (philox.h)
  float scale = 1;
  uint32_t site = 0;
  const int64_t* row_keys = nullptr;
};

// layer_norm(dropout(x) + residual) of rows of `columns`; T is x's type.
template <class T>
struct LayerNormParams {
  int64_t columns;
  const T* x;
  const float* residual;
  const float *weight, *bias;
  float eps;
  DropoutParams dropout;
  float *mean, *rstd;  // [rows]; forward writes, backward reads
  float* y;            // forward
  T* y_copy;           // forward; null when T is float
  const float* dy;     // backward: either gradient may be null
  const T* dy_copy;
  T* dx;
  float* dresidual;
};

// h = residual + dropout(x), y = norm(h) of rows of `columns`; T is the type of x and y.
template <class T>
struct PreNormParams {
  int64_t columns;
  const float *weight, *bias;  // bias may be null
  float eps;
  bool rms;
  DropoutParams dropout;
  float *h, *mean, *rstd;  // [rows, columns], [rows], [rows]; forward writes, backward reads
  const T* x;              // forward; null: h is given
  const float* residual;   // forward
  T* y;                    // forward
  const float* dh;         // backward: either gradient may be null
  const T* dy;
  float* dresidual;
  T* dx;  // null: not wanted
};

// C = A B for packed operands. A row-major of T, or packed strips; B packed panels.
template <class T>
struct GemmParams {
  int64_t m, n, k;
  const T* a;  // row-major, rows lda apart; or
  int64_t lda;
  const float* a_strips;  // packed strips
  const float* b_panels;
  T* c;            // [m, n] in T, dense; or
  float* c_float;  // in fp32, rows ldc apart, never with bias or activation
  int64_t ldc;
  bool accumulate;    // adds to c_float
  const float* bias;  // [n], or null
  Activation activation;
  T* activated;  // activation(c); of ReLU none: c itself is after it
};

// y = x W^T + b.
template <class T>
struct FewRowsParams {
  int64_t m, n, k;
  const T* x;           // [m, k]
  const float* weight;  // [n, k]
  const float* bias;    // [n], or null
  float* y;             // [m, n]
};

// Grouped-query attention: query head h attends by key and value head h / (num_heads / num_kv_heads).
template <class T>
struct AttentionParams {
  int64_t num_heads, num_kv_heads, head_dim;
  bool is_causal;
  const T* qkv;  // [N, (H + 2 Hkv) D]
  int64_t qkv_stride;
  const float* cos_sin;         // [positions, D], of rotary embedding; null: none
  const int64_t* position_ids;  // [N]
  DropoutParams dropout;
  T* out;         // [N, H D]; forward
  float* lse;     // [N, H]: log of the sum of exponentials; forward writes, backward reads
  const T* dout;  // [N, H D]; backward
  T* dqkv;        // as qkv, dense
};

// Dot products of all pairs of a record's vectors: `first` where there is one, then `num_embeddings`, all of `dim` floats.
struct InteractionParams {
  bool has_first;
  int64_t num_embeddings, dim;
  const float* first;       // [records, dim]
  const float* embeddings;  // [records, num_embeddings, dim]

  int64_t num_vectors() const { return num_embeddings + (has_first ? 1 : 0); }
  int64_t columns() const { return (has_first ? dim : 0) + num_vectors() * (num_vectors() - 1) / 2; }
};

// The cross-entropy of a row of `columns` logits, of which `vocab` are classes.
template <class T>
struct CrossEntropyRow {
  float* logits;  // [columns]; overwritten
  int64_t vocab, columns, label;
  T* dlogits;  // softmax - one-hot, zero from vocab on; may be logits itself; null: not wanted
};

// For x, activations and gradients of type T. Weights are fp32.
template <class T>
struct TypedKernels {
  void (*layer_norm_forward)(const LayerNormParams<T>&, int64_t first_row, int64_t last_row);
  // Writes sums over these rows of the gradients of weight and bias to dweight and dbias ([columns] each).
  void (*layer_norm_backward)(const LayerNormParams<T>&, int64_t first_row, int64_t last_row, float* dweight,
                              float* dbias);
  void (*pre_norm_forward)(const PreNormParams<T>&, int64_t first_row, int64_t last_row);
  // Writes sums over these rows of the gradients of weight and bias, as above.
  void (*pre_norm_backward)(const PreNormParams<T>&, int64_t first_row, int64_t last_row, float* dweight,
                            float* dbias);
  void (*dropout)(const T* x, T* y, int64_t columns, const DropoutParams&, int64_t first_row,
                  int64_t last_row);
  // dx = dy activation'(x), over n elements; of ReLU x may be what came out of it.
  void (*activation_backward)(Activation, const T* x, const T* dy, T* dx, int64_t n);
  // A row of silu(gate) * up, [2 n] -> [n], and its gradient.
  void (*swiglu_forward)(const T* gate_up, T* y, int64_t n);
  void (*swiglu_backward)(const T* gate_up, const T* dy, T* dgate_up, int64_t n);
  float (*cross_entropy)(const CrossEntropyRow<T>&);  // returns the loss
  // out [records, columns()] in T: `first`, then the products below the diagonal row by row. `scratch`:
  // interaction_scratch() floats.
  void (*interaction_forward)(const InteractionParams&, T* out, int64_t first_record, int64_t last_record,
                              float* scratch);
  void (*interaction_backward)(const InteractionParams&, const T* dout, float* dfirst, float* dembeddings,
                               int64_t first_record, int64_t last_record, float* scratch);

  // Packs columns [panel * panel_columns, ...) of B [k, n]; a panel takes panel_columns * steps(k) floats.
  void (*pack_weight)(const float* weight, int64_t k, int64_t n, int64_t panel, float* out);  // B = weight
  void (*pack_weight_transposed)(const float* weight, int64_t k, int64_t n, int64_t panel,
                                 float* out);                                             // weight [n, k]
  void (*pack_activations)(const T* x, int64_t k, int64_t n, int64_t panel, float* out);  // B = x
  // Packs rows [strip * strip_rows, ...) of A = g^T, g [k, m]; a strip takes strip_rows * steps(k) floats.
  // Adds to column_sums [m] (or null) the sums of g's columns.
  void (*pack_strip)(const T* g, int64_t k, int64_t m, int64_t strip, float* out, float* column_sums);
  // Rows of strips [first_strip, last_strip) times columns of panels [first_panel, last_panel).
  void (*gemm)(const GemmParams<T>&, int64_t first_strip, int64_t last_strip, int64_t first_panel,
               int64_t last_panel);
  // Columns [begin, end) of y.
  void (*multiply_few_rows)(const FewRowsParams<T>&, int64_t begin, int64_t end);
  int64_t steps_of_two;  // 1: two consecutive k are a step of one 32-bit lane (bf16 dot products); 0: one is

  // The query heads of one key and value head, over the sequence of rows [start, start + length). `scratch`:
  // attention_scratch(length, head_dim) floats.
  void (*attention_forward)(const AttentionParams<T>&, int64_t start, int64_t length, int64_t kv_head,
                            float* scratch);
  void (*attention_backward)(const AttentionParams<T>&, int64_t start, int64_t length, int64_t kv_head,
                             float* scratch);

  int64_t steps(int64_t k) const { return steps_of_two ? (k + 1) / 2 : k; }
};

struct CpuKernels {
  const char* isa;
  int64_t panel_columns, strip_rows;
  int64_t (*attention_scratch)(int64_t length, int64_t head_dim);
  int64_t (*interaction_scratch)(int64_t num_vectors, int64_t dim);
  TypedKernels<float> f32;
  TypedKernels<Bf16> bf16;

  template <class T>
  const TypedKernels<T>& of() const {
    if constexpr (sizeof(T) == 4) {
      return f32;
    } else {
      return bf16;
    }
  }
};

// The table of this name, the best of this CPU when it is null or empty. Throws SpecError when this CPU lacks
// it.
const CpuKernels& select_kernels(const char* isa);
// That of the environment's TRAINER_CPU_ISA (baseline, avx2, avx512 or avx512_bf16), chosen at the first
// call.
const CpuKernels& cpu_kernels();

}  // namespace trainer::kernels
