#include "embedding/routing.h"

#include <ATen/Functions.h>

#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/math.h"

namespace trainer::embedding {
namespace {

// The bags of one feature.
struct Bags {
  const int64_t* ids;
  const int64_t* offsets;  // [B + 1]
  const float* weights;    // null: none
};

// Where the pieces of a table that is split by rows lie: block k of its rows belongs to pieces[k]. A table that is not has one
// block of all rows, and a piece for each range of columns.
struct Destination {
  size_t owner;
  const Piece* piece;
  int64_t number;  // of the piece among its owner's
};

struct Output {
  int64_t* sizes = nullptr;
  int64_t num_ids = 0;
  int64_t begin = 0;  // of this owner in the buffer
};

[[noreturn]] void fail_range(int64_t id, const Piece& piece) {
  fail<DataError>("id {} of sparse feature number {} is no row of its table, which has {}", id, piece.feature,
                  piece.total_rows);
}

bool is_row(int64_t id, int64_t rows) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(rows);
}

void check_range(const at::Tensor& ids, const Piece& piece) {
  const auto* const id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (!is_row(id[i], piece.total_rows)) fail_range(id[i], piece);
  }
}

// By feature: its pieces, in the order of their rows.
std::vector<std::vector<Destination>> destinations(const Layout& layout) {
  std::vector<std::vector<Destination>> result(layout.feature_dims.size());
  for (size_t o = 0; o < layout.owners.size(); ++o) {
    int64_t number = 0;
    for (const Piece& piece : layout.owners[o].pieces)
      result[static_cast<size_t>(piece.feature)].push_back({o, &piece, number++});
  }
  return result;
}

template <class Id>
class Router {
 public:
  Router(const Layout& layout, const data::Records& records, int64_t batch, bool pinned)
      : layout_(layout), records_(records), batch_(batch), pinned_(pinned), features_(destinations(layout)) {}

  Routed route() {
    count();
    allocate();
    fill();
    return std::move(routed_);
  }

 private:
  Bags bags(size_t feature) const {
    return {records_.ids.const_data_ptr<int64_t>(),
            records_.offsets.const_data_ptr<int64_t>() + static_cast<int64_t>(feature) * batch_,
            records_.weights.defined() ? records_.weights.const_data_ptr<float>() : nullptr};
  }

  void count() {
    int64_t total = 0;
    for (const Owner& owner : layout_.owners) total += num_sizes(owner);
    routed_.sizes = at::zeros({total}, at::kLong);
    auto* sizes = routed_.sizes.mutable_data_ptr<int64_t>();
    outputs_.resize(layout_.owners.size());
    for (size_t o = 0; o < layout_.owners.size(); ++o) {
      outputs_[o].sizes = sizes;
      sizes[0] = batch_;
      sizes[1] = records_.weights.defined() ? 1 : 0;
      sizes += num_sizes(layout_.owners[o]);
    }
    for (size_t f = 0; f < features_.size(); ++f) {
      const auto& pieces = features_[f];
      if (pieces.empty()) continue;  // of a replicated table
      const Bags b = bags(f);
      const int64_t begin = b.offsets[0], end = b.offsets[batch_];
      const Piece& first = *pieces.front().piece;
      if (!first.is_row_block) {
        for (int64_t i = begin; i < end; ++i) {
          if (!is_row(b.ids[i], first.total_rows)) fail_range(b.ids[i], first);
        }
        for (const Destination& d : pieces) add(d, end - begin);
        continue;
      }
      std::vector<int64_t> counts(pieces.size());
      for (int64_t i = begin; i < end; ++i) {
        if (!is_row(b.ids[i], first.total_rows)) fail_range(b.ids[i], first);
        ++counts[static_cast<size_t>(b.ids[i] / first.rows)];
      }
      for (size_t k = 0; k < pieces.size(); ++k) add(pieces[k], counts[k]);
    }
  }

  void add(const Destination& d, int64_t num_ids) {
    outputs_[d.owner].sizes[2 + d.number] = num_ids;
    outputs_[d.owner].num_ids += num_ids;
  }

  void allocate() {
    const bool weighted = records_.weights.defined();
    int64_t total = 0;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const auto pieces = static_cast<int64_t>(layout_.owners[o].pieces.size());
      outputs_[o].begin = total;
      routed_.elements.push_back(pieces * batch_ + outputs_[o].num_ids * (weighted ? 2 : 1));
      total += routed_.elements.back();
    }
    routed_.buffer =
        at::empty({total}, at::TensorOptions(c10::CppTypeToScalarType<Id>::value).pinned_memory(pinned_));
  }

  // Where a piece's lengths, ids and weights go.
  struct Cursor {
    Id* lengths;
    Id* ids;
    Id* weights;
  };
  std::vector<Cursor> cursors(const std::vector<Destination>& pieces, std::vector<int64_t>& done) {
    std::vector<Cursor> result;
    for (const Destination& d : pieces) {
      const Output& out = outputs_[d.owner];
      const auto num_pieces = static_cast<int64_t>(layout_.owners[d.owner].pieces.size());
      Id* const begin = routed_.buffer.mutable_data_ptr<Id>() + out.begin;
      Id* const ids = begin + num_pieces * batch_ + done[d.owner];
      result.push_back({begin + d.number * batch_, ids, ids + out.num_ids});
      done[d.owner] += out.sizes[2 + d.number];  // pieces are by feature, at each owner too
    }
    return result;
  }

  void fill() {
    std::vector<int64_t> done(outputs_.size());
    for (size_t f = 0; f < features_.size(); ++f) {
      const auto& pieces = features_[f];
      if (pieces.empty()) continue;
      std::vector<Cursor> to = cursors(pieces, done);
      const Bags b = bags(f);
      if (pieces.front().piece->is_row_block) {
        scatter(b, pieces.front().piece->rows, to);
      } else {
        for (const Cursor& c : to) copy(b, c);
      }
    }
  }

  void copy(const Bags& b, const Cursor& to) const {
    for (int64_t s = 0; s < batch_; ++s) to.lengths[s] = static_cast<Id>(b.offsets[s + 1] - b.offsets[s]);
    const int64_t begin = b.offsets[0], num_ids = b.offsets[batch_] - begin;
    for (int64_t i = 0; i < num_ids; ++i) to.ids[i] = static_cast<Id>(b.ids[begin + i]);
    if (b.weights == nullptr) return;
    for (int64_t i = 0; i < num_ids; ++i) to.weights[i] = bits(b.weights[begin + i]);
  }

  void scatter(const Bags& b, int64_t block, std::vector<Cursor>& to) const {
    for (int64_t s = 0; s < batch_; ++s) {
      for (const Cursor& c : to) c.lengths[s] = 0;
      for (int64_t i = b.offsets[s]; i < b.offsets[s + 1]; ++i) {
        const int64_t k = b.ids[i] / block;
        Cursor& c = to[static_cast<size_t>(k)];
        ++c.lengths[s];
        *c.ids++ = static_cast<Id>(b.ids[i] - k * block);
        if (b.weights != nullptr) *c.weights++ = bits(b.weights[i]);
      }
    }
  }

  static Id bits(float value) {
    int32_t result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }

  const Layout& layout_;
  const data::Records& records_;
  const int64_t batch_;
  const bool pinned_;
  std::vector<std::vector<Destination>> features_;
  std::vector<Output> outputs_;
  Routed routed_;
};

}  // namespace

at::ScalarType id_type(const Layout& layout) {
  for (const Owner& owner : layout.owners) {
    for (const Piece& piece : owner.pieces) {
      if (piece.rows > std::numeric_limits<int32_t>::max()) return at::kLong;
    }
  }
  return at::kInt;
}

Routed route(const Layout& layout, const data::Records& records, int64_t batch, bool pinned) {
  return id_type(layout) == at::kInt ? Router<int32_t>(layout, records, batch, pinned).route()
                                     : Router<int64_t>(layout, records, batch, pinned).route();
}

std::vector<int64_t> num_elements(const Owner& owner, const at::Tensor& sizes) {
  const auto pieces = static_cast<int64_t>(owner.pieces.size());
  std::vector<int64_t> result;
  const auto* s = sizes.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < sizes.size(0); ++r, s += 2 + pieces) {
    int64_t num_ids = 0;
    for (int64_t p = 0; p < pieces; ++p) num_ids += s[2 + p];
    result.push_back(pieces * s[0] + num_ids * (s[1] != 0 ? 2 : 1));
  }
  return result;
}

Lookup unpack(const Owner& owner, const at::Tensor& sizes, const at::Tensor& received) {
  const auto pieces = static_cast<int64_t>(owner.pieces.size());
  const auto options = received.options().dtype(at::kLong);
  std::vector<at::Tensor> lengths;  // of each rank
  std::vector<std::vector<at::Tensor>> ids(owner.pieces.size()),
      weights(owner.pieces.size());  // of each rank
  const auto* s = sizes.const_data_ptr<int64_t>();
  bool weighted = false;
  for (int64_t r = 0; r < sizes.size(0); ++r) weighted |= s[r * (2 + pieces) + 1] != 0;
  Lookup lookup;
  int64_t at = 0;
  for (int64_t r = 0; r < sizes.size(0); ++r, s += 2 + pieces) {
    lengths.push_back(received.narrow(0, at, pieces * s[0]).view({pieces, s[0]}));
    lookup.batch += s[0];
    at += pieces * s[0];
    for (int64_t p = 0; p < pieces; at += s[2 + p++])
      ids[static_cast<size_t>(p)].push_back(received.narrow(0, at, s[2 + p]));
    for (int64_t p = 0; weighted && p < pieces; ++p) {
      at::Tensor w = at::ones({s[2 + p]}, received.options().dtype(at::kFloat));
      if (s[1] != 0) {
        w = received.narrow(0, at, s[2 + p]).to(at::kInt).view(at::kFloat);
        at += s[2 + p];
      }
      weights[static_cast<size_t>(p)].push_back(w);
    }
  }
  const auto joined = [](const std::vector<std::vector<at::Tensor>>& parts) {
    std::vector<at::Tensor> all;
    for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
    return at::cat(all);
  };
  lookup.offsets = at::zeros({pieces * lookup.batch + 1}, options);
  if (pieces == 0) {
    lookup.ids = at::empty({0}, options);
    return lookup;
  }
  at::Tensor ends = lookup.offsets.narrow(0, 1, pieces * lookup.batch);
  at::cumsum_out(ends, at::cat(lengths, 1).view(-1), 0, at::kLong);
  lookup.ids = joined(ids).to(at::kLong);
  if (weighted) lookup.weights = joined(weights);
  return lookup;
}

Lookup select(const Owner& replicated, const data::Records& records, int64_t batch) {
  Lookup lookup;
  lookup.batch = batch;
  std::vector<at::Tensor> ids, weights, lengths;
  const at::Tensor all_lengths = records.offsets.diff();
  const auto* offsets = records.offsets.const_data_ptr<int64_t>();
  for (const Piece& piece : replicated.pieces) {
    const int64_t begin = offsets[piece.feature * batch];
    const int64_t num_ids = offsets[(piece.feature + 1) * batch] - begin;
    lengths.push_back(all_lengths.narrow(0, piece.feature * batch, batch));
    ids.push_back(records.ids.narrow(0, begin, num_ids));
    check_range(ids.back(), piece);
    if (records.weights.defined()) weights.push_back(records.weights.narrow(0, begin, num_ids));
  }
  lookup.ids = at::cat(ids);
  if (!weights.empty()) lookup.weights = at::cat(weights);
  lookup.offsets = at::zeros({static_cast<int64_t>(lengths.size()) * batch + 1}, at::kLong);
  at::Tensor ends = lookup.offsets.narrow(0, 1, lookup.offsets.size(0) - 1);
  at::cumsum_out(ends, at::cat(lengths), 0);
  return lookup;
}

}  // namespace trainer::embedding
