#include "embedding/replicated.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace trainer::embedding {
namespace {

// dense[id] += weight * [gradient of the id's bag, 1], on the CPU.
void add_rows(const at::Tensor& dense, const at::Tensor& ids, const at::Tensor& offsets,
              const at::Tensor& weights, const at::Tensor& gradient) {
  const int64_t dim = dense.size(1) - 1;
  auto* const to = dense.mutable_data_ptr<float>();
  const auto* const id = ids.const_data_ptr<int64_t>();
  const auto* const begin = offsets.const_data_ptr<int64_t>();
  const auto* const weight = weights.defined() ? weights.const_data_ptr<float>() : nullptr;
  const auto* const from = gradient.const_data_ptr<float>();
  for (int64_t s = 0; s < gradient.size(0); ++s) {
    const float* const g = from + s * gradient.stride(0);
    for (int64_t i = begin[s]; i < begin[s + 1]; ++i) {
      float* const row = to + id[i] * (dim + 1);
      const float w = weight == nullptr ? 1 : weight[i];
      for (int64_t c = 0; c < dim; ++c) row[c] += w * g[c];
      row[dim] += 1;
    }
  }
}

}  // namespace

ReplicatedUpdate::ReplicatedUpdate(const Owner& owner, const std::vector<Table>& tables, at::Device device)
    : pieces_(owner.pieces), columns_(owner.columns) {
  int64_t total = 0;
  for (const Table& t : tables) total += t.rows * (t.dim + 1);
  buffer_ = at::zeros({total}, at::TensorOptions(device).dtype(at::kFloat));
  int64_t at = 0;
  for (const Table& t : tables) {
    dense_.push_back(buffer_.narrow(0, at, t.rows * (t.dim + 1)).view({t.rows, t.dim + 1}));
    at += t.rows * (t.dim + 1);
  }
}

void ReplicatedUpdate::add(const Lookup& lookup, const at::Tensor& gradient) {
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    const at::Tensor& dense = dense_[static_cast<size_t>(piece.shard)];
    const at::Tensor offsets =
        lookup.offsets.narrow(0, static_cast<int64_t>(p) * lookup.batch, lookup.batch + 1);
    const at::Tensor g = gradient.narrow(1, piece.owner_column, piece.cols);
    if (g.is_cpu()) {
      add_rows(dense, lookup.ids, offsets, lookup.weights, g);
      continue;
    }
    // Summed in the order of the ids, not by atomics.
    const at::Tensor span =
        offsets.index_select(0, at::tensor({int64_t{0}, lookup.batch}, offsets.options())).cpu();
    const int64_t begin = span.const_data_ptr<int64_t>()[0], end = span.const_data_ptr<int64_t>()[1];
    const at::Tensor sample = at::repeat_interleave(at::arange(lookup.batch, offsets.options()),
                                                    offsets.diff(), std::nullopt, end - begin);
    at::Tensor rows = g.index_select(0, sample);
    if (lookup.weights.defined()) rows.mul_(lookup.weights.narrow(0, begin, end - begin).unsqueeze(1));
    rows = at::cat({rows, rows.new_ones({end - begin, 1})}, 1);
    dense.add_(at::embedding_dense_backward(rows, lookup.ids.narrow(0, begin, end - begin), dense.size(0), -1,
                                            false));
  }
}

void ReplicatedUpdate::step(Tables& tables, dist::Communicator& communicator, std::span<const Lookup> lookups,
                            std::span<const at::Tensor> gradients, const at::Tensor& lr,
                            const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  for (size_t i = 0; i < lookups.size(); ++i) add(lookups[i], gradients[i]);
  communicator.all_reduce_sum(buffer_);

  // A lookup that gives each touched row its sum: bag j of a table's first feature is its j-th touched row.
  std::vector<at::Tensor> touched;
  int64_t most = 0;
  for (const at::Tensor& dense : dense_) {
    touched.push_back(dense.select(1, dense.size(1) - 1).nonzero().view(-1));
    most = std::max(most, touched.back().size(0));
  }
  const auto options = touched.front().options();
  Lookup rows;
  rows.batch = most;
  std::vector<at::Tensor> ids, lengths;
  const at::Tensor sums = at::zeros({most, columns_}, buffer_.options());
  std::vector<bool> done(dense_.size());
  for (const Piece& piece : pieces_) {
    const auto t = static_cast<size_t>(piece.shard);
    lengths.push_back(at::zeros({most}, options));
    if (done[t]) continue;
    done[t] = true;
    ids.push_back(touched[t]);
    const int64_t n = touched[t].size(0);
    lengths.back().narrow(0, 0, n).fill_(1);
    sums.narrow(0, 0, n)
        .narrow(1, piece.owner_column, piece.cols)
        .copy_(dense_[t].narrow(1, 0, piece.cols).index_select(0, touched[t]));
  }
  rows.ids = at::cat(ids);
  rows.offsets = at::cat({at::zeros({1}, options), at::cat(lengths).cumsum(0)});
  tables.step({&rows, 1}, {&sums, 1}, lr, grad_scale, found_inf, nullptr);
  buffer_.zero_();
}

}  // namespace trainer::embedding
