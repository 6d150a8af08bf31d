#include <torch/torch.h>

#include <numeric>

#include "core/error.h"
#include "core/math.h"
#include "kernels/cross_entropy.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

// A weight panel, multiplied by this many strips of rows: what a thread takes.
constexpr int64_t kItemStrips = 32;
// Rows of weight whose part of dx is made at once: their panels stay in the cache. Even, and whole strips.
constexpr int64_t kVocabBlock = 1020;

// Chunks of rows that all have a label.
template <class T>
class Chunks {
 public:
  Chunks(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels, int64_t vocab)
      : x_(x), weight_(weight), labels_(labels), vocab_(vocab), columns_(round_up(vocab, panel_)) {
    const int64_t rows = std::min(x.size(0), cross_entropy_rows(weight.size(0), false));
    // Rows are read by pairs of bf16: columns_ is even, and zero from vocab on.
    logits_ = at::empty({rows, columns_}, at::kFloat);
    if constexpr (sizeof(T) == 2) dlogits_ = at::empty({rows, columns_}, at::kBFloat16);
  }

  int64_t chunk_rows() const { return logits_.size(0); }

  // The losses of rows [start, start + rows), and the gradients of logits when they are wanted.
  void forward(int64_t start, int64_t rows, bool with_gradients, float* losses) {
    const int64_t channels = x_.size(1), panels = columns_ / panel_, strips = ceil_div(rows, strip_);
    GemmParams<T> params{};
    params.m = rows, params.n = columns_, params.k = channels;
    params.a = data<T>(x_) + start * channels, params.lda = channels;
    params.ldc = columns_;
    parallel_items(panels * ceil_div(strips, kItemStrips), [&](int64_t item) {
      const int64_t panel = item % panels, first = item / panels * kItemStrips;
      float* b = scratch(kHead, panel_ * typed_.steps(channels));
      typed_.pack_weight_transposed(data<float>(weight_), channels, vocab_, panel, b);
      multiply_panel(params, b, panel, mutable_data<float>(logits_), first, strips);
    });
    constexpr int64_t kRows = 8;
    parallel_items(ceil_div(rows, kRows), [&](int64_t item) {
      for (int64_t row = item * kRows; row < std::min(rows, (item + 1) * kRows); ++row) {
        const CrossEntropyRow<T> one{.logits = mutable_data<float>(logits_) + row * columns_,
                                     .vocab = vocab_,
                                     .columns = columns_,
                                     .label = labels_.const_data_ptr<int64_t>()[start + row],
                                     .dlogits = with_gradients ? gradients() + row * columns_ : nullptr};
        losses[start + row] = typed_.cross_entropy(one);
      }
    });
  }

  // dx (undefined: none) of the chunk [rows, C], overwritten, and dw (undefined: none) [V, C], added to.
  void backward(int64_t start, int64_t rows, const at::Tensor& dx, const at::Tensor& dw) {
    const int64_t channels = x_.size(1), panels = ceil_div(channels, panel_);
    const int64_t strips = ceil_div(rows, strip_), groups = ceil_div(strips, kItemStrips);
    float* const x_panels = scratch(kPanels, dw.defined() ? panels * panel_ * typed_.steps(rows) : 0);
    if (dw.defined()) {
      parallel_items(panels, [&](int64_t panel) {
        typed_.pack_activations(data<T>(x_) + start * channels, rows, channels, panel,
                                x_panels + panel * panel_ * typed_.steps(rows));
      });
    }
    for (int64_t first = 0; first < vocab_; first += kVocabBlock) {
      const int64_t block = std::min(kVocabBlock, vocab_ - first);
      const int64_t dx_items = dx.defined() ? panels * groups : 0;
      const int64_t dw_items = dw.defined() ? ceil_div(ceil_div(block, strip_), kStripGroup) : 0;
      parallel_items(dx_items + dw_items, [&](int64_t item) {
        if (item < dx_items) {
          GemmParams<T> params{};
          params.m = rows, params.n = channels, params.k = block;
          params.a = gradients() + first, params.lda = columns_;
          params.ldc = channels;
          params.accumulate = first > 0;
          float* b = scratch(kHead, panel_ * typed_.steps(block));
          typed_.pack_weight(data<float>(weight_) + first * channels, block, channels, item % panels, b);
          multiply_panel(params, b, item % panels, mutable_data<float>(dx), item / panels * kItemStrips,
                         strips);
        } else {
          add_weight_gradient(first, block, item - dx_items, rows, x_panels, start > 0, dw);
        }
      });
    }
  }

 private:
  static constexpr int64_t kStripGroup = 4;  // neighbouring columns of dlogits share cache lines

  static int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

  T* gradients() const {
    if constexpr (sizeof(T) == 2)
      return mutable_data<T>(dlogits_);
    else
      return mutable_data<float>(logits_);
  }

  // Strips [first, first + kItemStrips) times one panel b to columns of panel `panel` of c.
  void multiply_panel(GemmParams<T> params, const float* b, int64_t panel, float* c, int64_t first,
                      int64_t strips) const {
    params.b_panels = b;
    params.n = std::min(panel_, params.n - panel * panel_);
    params.c_float = c + panel * panel_;
    typed_.gemm(params, first, std::min(strips, first + kItemStrips), 0, 1);
  }

  // Rows of a group of strips, of those of the block of the vocabulary from `first` on.
  void add_weight_gradient(int64_t first, int64_t block, int64_t group, int64_t rows, const float* x_panels,
                           bool accumulate, const at::Tensor& dw) const {
    const int64_t channels = x_.size(1), strip_size = strip_ * typed_.steps(rows);
    const int64_t begin = first + group * kStripGroup * strip_;
    GemmParams<T> params{};
    params.m = std::min(kStripGroup * strip_, first + block - begin);
    params.n = channels, params.k = rows;
    float* a = scratch(kHead, kStripGroup * strip_size + 16);
    const int64_t strips = ceil_div(params.m, strip_);
    for (int64_t i = 0; i < strips; ++i) {
      typed_.pack_strip(gradients(), rows, columns_, begin / strip_ + i, a + i * strip_size, nullptr);
    }
    params.a_strips = a;
    params.b_panels = x_panels;
    params.c_float = mutable_data<float>(dw) + begin * channels;
    params.ldc = channels;
    params.accumulate = accumulate;
    typed_.gemm(params, 0, strips, 0, ceil_div(channels, panel_));
  }

  const CpuKernels& kernels_ = cpu_kernels();
  const TypedKernels<T>& typed_ = kernels_.of<T>();
  const int64_t panel_ = kernels_.panel_columns, strip_ = kernels_.strip_rows;
  const at::Tensor &x_, &weight_, &labels_;
  int64_t vocab_, columns_;
  at::Tensor logits_, dlogits_;
};

// Rows that have a label; undefined when all have.
at::Tensor labelled_rows(const at::Tensor& labels, int64_t vocab) {
  const auto* label = labels.const_data_ptr<int64_t>();
  int64_t ignored = 0;
  for (int64_t row = 0; row < labels.size(0); ++row) {
    if (label[row] == kIgnoredLabel) {
      ++ignored;
    } else if (label[row] < 0 || label[row] >= vocab) {
      fail<DataError>("label of row {}: got {}; expected 0 to {}, or {} for none", row, label[row], vocab - 1,
                      kIgnoredLabel);
    }
  }
  return ignored == 0 ? at::Tensor() : labels.ne(kIgnoredLabel).nonzero().squeeze(1);
}

}  // namespace

LossAndGradients loss_and_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    int64_t vocab, Wanted wanted) {
  const at::Tensor rows = labelled_rows(labels.contiguous(), vocab);
  const at::Tensor dense = rows.defined() ? x.index_select(0, rows) : x.contiguous();
  const at::Tensor label = rows.defined() ? labels.index_select(0, rows) : labels.contiguous();
  const at::Tensor w = weight.contiguous();
  const int64_t n = dense.size(0);
  LossAndGradients result;
  if (wanted.dw) {
    result.dw = at::empty(w.sizes(), w.options());
    const int64_t used = n == 0 ? 0 : vocab;  // the rest has no gradient
    result.dw.narrow(0, used, w.size(0) - used).zero_();
  }
  at::Tensor dx = wanted.dx ? at::empty_like(dense) : at::Tensor();
  const at::Tensor losses = at::empty({n}, at::kFloat);
  if (n > 0) {
    with_type(dense, [&]<class T>(T) {
      Chunks<T> chunks(dense, w, label, vocab);
      const at::Tensor dx_sums = wanted.dx && sizeof(T) == 2
                                     ? at::empty({chunks.chunk_rows(), x.size(1)}, at::kFloat)
                                     : at::Tensor();
      for (int64_t start = 0; start < n; start += chunks.chunk_rows()) {
        const int64_t count = std::min(chunks.chunk_rows(), n - start);
        chunks.forward(start, count, wanted.dx || wanted.dw, mutable_data<float>(losses));
        if (!wanted.dx && !wanted.dw) continue;
        const at::Tensor part = wanted.dx ? dx.narrow(0, start, count) : at::Tensor();
        chunks.backward(start, count, dx_sums.defined() ? dx_sums : part, result.dw);
        if (dx_sums.defined()) part.copy_(dx_sums.narrow(0, 0, count));
      }
    });
  }
  const auto* loss = losses.const_data_ptr<float>();
  result.loss = at::scalar_tensor(std::accumulate(loss, loss + n, 0.0), at::kFloat);
  if (wanted.dx) result.dx = rows.defined() ? at::zeros_like(x).index_copy_(0, rows, dx) : dx;
  return result;
}

}  // namespace trainer::kernels::fused
