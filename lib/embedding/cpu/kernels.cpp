// Compiled once for every instruction set: TRAINER_CPU_ISA is its name, and the namespace of all of it.
#include "embedding/cpu/kernels.h"

#include "embedding/cpu/rows.h"

#define TRAINER_STRING(x) #x
#define TRAINER_NAME(x) TRAINER_STRING(x)

namespace trainer::embedding::TRAINER_CPU_ISA {

// Rows are read at random from memory: so many ids ahead, their cache lines are asked for.
constexpr int64_t kAhead = 16;
constexpr int kBlock = 4;  // vectors of a sum that are in registers at a time

template <class T>
TRAINER_INLINE void prefetch(const T* p, int64_t n) {
  const char* line = reinterpret_cast<const char*>(p);
  for (const char* end = reinterpret_cast<const char*>(p + n); line < end; line += 64) {
    __builtin_prefetch(line);
  }
}

template <int kCount>
struct Vectors {
  static constexpr int count = kCount;
};

// Calls body(first column, number of vectors as a constant, columns of the last of them) for blocks of a row.
template <class Body>
TRAINER_INLINE void for_blocks(int64_t dim, Body body) {
  int64_t column = 0;
  for (; column + kBlock * kLanes < dim; column += kBlock * kLanes) {
    body(column, Vectors<kBlock>{}, int64_t{kLanes});
  }
  const int64_t last = (dim - 1) % kLanes + 1;
  switch ((dim - 1 - column) / kLanes) {
    case 0:
      return body(column, Vectors<1>{}, last);
    case 1:
      return body(column, Vectors<2>{}, last);
    case 2:
      return body(column, Vectors<3>{}, last);
    default:
      return body(column, Vectors<4>{}, last);
  }
}
// Calls body(column, columns) for the vectors of a row.
template <class Body>
TRAINER_INLINE void for_columns(int64_t dim, Body body) {
  int64_t column = 0;
  for (; column + kLanes <= dim; column += kLanes) body(column, int64_t{kLanes});
  if (column < dim) body(column, dim - column);
}

template <class Row>
void pool(const PoolParams& p, int64_t begin, int64_t end) {
  const Row* rows = static_cast<const Row*>(p.rows);
  const int64_t num_ids = p.offsets[p.num_bags];
  const auto prefetch_id = [&](int64_t i) __attribute__((always_inline)) {
    if (i < num_ids) prefetch(rows + p.ids[i] * p.dim, p.dim);
  };
  for (int64_t i = 0; i < kAhead; ++i) prefetch_id(p.offsets[begin] + i);
  for (int64_t bag = begin; bag < end; ++bag) {
    const int64_t first = p.offsets[bag], last = p.offsets[bag + 1];
    float* out = p.out + bag * p.out_stride;
    for_blocks(
        p.dim, [&](int64_t column, auto vectors, int64_t columns) __attribute__((always_inline)) {
          constexpr int kCount = decltype(vectors)::count;
          Vec total[kCount] = {};
          for (int64_t i = first; i < last; ++i) {
            if (column == 0) prefetch_id(i + kAhead);
            const Row* row = rows + p.ids[i] * p.dim + column;
            const Vec weight = splat(p.weights == nullptr ? 1.0F : p.weights[i]);
            for (int v = 0; v < kCount; ++v) {
              total[v] += load_row(row + v * kLanes, v + 1 < kCount ? kLanes : columns) * weight;
            }
          }
          for (int v = 0; v < kCount; ++v) {
            store_row(out + column + v * kLanes, total[v], v + 1 < kCount ? kLanes : columns);
          }
        });
  }
}

TRAINER_INLINE const float* gradient(const UpdateParams& p, uint64_t key) {
  const Slot& slot = p.slots[(key & ((uint64_t{1} << p.row_shift) - 1)) >> p.slot_shift];
  return slot.gradient + static_cast<int64_t>(key & ((uint64_t{1} << p.slot_shift) - 1)) * slot.stride;
}
TRAINER_INLINE float weight(const Entry&) {
  return 1;
}
TRAINER_INLINE float weight(const WeightedEntry& entry) {
  return entry.weight;
}

// Calls body(row) for each row in turn, whose summed gradient, scaled, is then in g [dim].
template <class Row, class Item, class Body>
TRAINER_INLINE void for_rows(const UpdateParams& p, const Item* items, int64_t n, float* g, Body body) {
  const auto prefetch_item = [&](int64_t i) __attribute__((always_inline)) {
    if (i >= n) return;
    prefetch(gradient(p, items[i].key), p.dim);
    const auto row = static_cast<int64_t>(items[i].key >> p.row_shift);
    prefetch(static_cast<const Row*>(p.rows) + row * p.dim, p.dim);
    if (p.sum != nullptr) prefetch(p.sum + row * p.sum_dim, p.sum_dim);
    if (p.exp_avg != nullptr) {
      prefetch(p.exp_avg + row * p.dim, p.dim);
      prefetch(p.exp_avg_sq + row * p.dim, p.dim);
    }
  };
  for (int64_t i = 0; i < kAhead; ++i) prefetch_item(i);
  const Vec scale = splat(p.gradient_scale);
  for (int64_t first = 0, last = 0; first < n; first = last) {
    const uint64_t row = items[first].key >> p.row_shift;
    for_blocks(
        p.dim, [&](int64_t column, auto vectors, int64_t columns) __attribute__((always_inline)) {
          constexpr int kCount = decltype(vectors)::count;
          Vec total[kCount] = {};
          for (last = first; last < n && items[last].key >> p.row_shift == row; ++last) {
            if (column == 0) prefetch_item(last + kAhead);
            const float* from = gradient(p, items[last].key) + column;
            const Vec factor = splat(weight(items[last]));
            for (int v = 0; v < kCount; ++v) {
              total[v] += load_row(from + v * kLanes, v + 1 < kCount ? kLanes : columns) * factor;
            }
          }
          for (int v = 0; v < kCount; ++v) store(g + column + v * kLanes, total[v] * scale);
        });
    body(static_cast<int64_t>(row));
  }
}

// Adds weight decay's part to g, and returns the sum of squares.
template <class Row>
TRAINER_INLINE float squares(const UpdateParams& p, const Row* w, float* g) {
  Vec total{};
  for_columns(
      p.dim, [&](int64_t column, int64_t columns) __attribute__((always_inline)) {
        Vec v = load(g + column);
        if (p.weight_decay != 0) {
          v += splat(p.weight_decay) * load_row(w + column, columns);
          store(g + column, v);
        }
        total += v * v;
      });
  return sum(total);
}

// The random bits of a row's columns, 16 each.
TRAINER_INLINE const uint16_t* random_bits(const UpdateParams& p, int64_t row, uint16_t* bits) {
  const auto place = static_cast<uint64_t>(p.row_begin + row);
  const int64_t first = p.column_begin / kGroup, last = (p.column_begin + p.dim - 1) / kGroup;
  for (int64_t group = first; group <= last; ++group) {
    philox_group({p.seed, static_cast<uint32_t>(place), p.table + static_cast<uint32_t>(place >> 32), p.step},
                 static_cast<uint32_t>(group), bits + (group - first) * kGroup);
  }
  return bits + p.column_begin % kGroup;
}

template <class Row, RowUpdate kUpdate, class Item>
void update(const UpdateParams& p, const Item* items, int64_t n, float* scratch, const float* row_sums) {
  float* g = scratch;
  auto* bits = reinterpret_cast<uint16_t*>(scratch + (p.dim + 15) / 16 * 16);
  const Vec lr = splat(p.lr), eps = splat(p.eps), decay = splat(p.weight_decay);
  for_rows<Row>(
      p, items, n, g, [&](int64_t row) __attribute__((always_inline)) {
        Row* w = static_cast<Row*>(p.rows) + row * p.dim;
        float multiplier = 0;
        if constexpr (kUpdate == RowUpdate::kRowwiseAdagrad) {
          const float own = squares(p, w, g), all = row_sums == nullptr ? own : *row_sums++;
          p.sum[row] += all / static_cast<float>(p.total_dim);
          multiplier = p.lr / (__builtin_sqrtf(p.sum[row]) + p.eps);
        }
        const bool stochastic = sizeof(Row) == 2 && p.stochastic;
        const uint16_t* random = stochastic ? random_bits(p, row, bits) : nullptr;
        for_columns(
            p.dim, [&](int64_t column, int64_t columns) __attribute__((always_inline)) {
              Vec value = load_row(w + column, columns), d = load(g + column);
              if constexpr (kUpdate == RowUpdate::kRowwiseAdagrad) {
                value -= splat(multiplier) * d;
              } else if constexpr (kUpdate == RowUpdate::kAdagrad) {
                float* sums = p.sum + row * p.dim + column;
                d += decay * value;
                const Vec total = load_row(sums, columns) + d * d;
                store_row(sums, total, columns);
                value -= lr * d / (sqrt(total) + eps);
              } else if constexpr (kUpdate == RowUpdate::kSgd) {
                value -= lr * (d + decay * value);
              } else {
                float *m = p.exp_avg + row * p.dim + column, *v = p.exp_avg_sq + row * p.dim + column;
                const Vec mean = splat(p.beta1) * load_row(m, columns) + splat(p.rest1) * d;
                const Vec square = splat(p.beta2) * load_row(v, columns) + splat(p.rest2) * d * d;
                store_row(m, mean, columns);
                store_row(v, square, columns);
                value -=
                    lr * (mean * splat(p.scale1) / (sqrt(square * splat(p.scale2)) + eps) + decay * value);
              }
              if (stochastic) {
                value = round_stochastically(
                    w, value, __builtin_convertvector(load_as<HalfVec>(random + column), UintVec));
              }
              store_row(w + column, value, columns);
            });
      });
}

template <class Row, class Item>
void sum_squares(const UpdateParams& p, const Item* items, int64_t n, float* scratch, float* row_sums) {
  for_rows<Row>(
      p, items, n, scratch, [&](int64_t row) __attribute__((always_inline)) {
        *row_sums++ = squares(p, static_cast<const Row*>(p.rows) + row * p.dim, scratch);
      });
}

template <class Row>
constexpr RowKernels row_kernels() {
  return {.pool = pool<Row>,
          .update = {update<Row, RowUpdate::kRowwiseAdagrad, Entry>, update<Row, RowUpdate::kAdagrad, Entry>,
                     update<Row, RowUpdate::kSgd, Entry>, update<Row, RowUpdate::kAdam, Entry>},
          .update_weighted = {update<Row, RowUpdate::kRowwiseAdagrad, WeightedEntry>,
                              update<Row, RowUpdate::kAdagrad, WeightedEntry>,
                              update<Row, RowUpdate::kSgd, WeightedEntry>,
                              update<Row, RowUpdate::kAdam, WeightedEntry>},
          .sum_squares = sum_squares<Row, Entry>,
          .sum_squares_weighted = sum_squares<Row, WeightedEntry>};
}

extern const EmbeddingKernels kKernels;
const EmbeddingKernels kKernels = {TRAINER_NAME(TRAINER_CPU_ISA), row_kernels<float>(), row_kernels<Fp16>(),
                                   row_kernels<Bf16>()};

}  // namespace trainer::embedding::TRAINER_CPU_ISA
