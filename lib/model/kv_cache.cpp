#include "model/kv_cache.h"

#include <torch/torch.h>

#include <algorithm>

namespace trainer::model {

KvCache::KvCache(int64_t layers, int64_t sequences, int64_t kv_heads, int64_t capacity, int64_t head_dim,
                 const at::TensorOptions& options)
    : capacity_(capacity), lengths_(static_cast<size_t>(sequences)) {
  for (int64_t i = 0; i < layers; ++i) {
    // Zeros: attend_one_each() reads what no token has written, and masks it; 0 × NaN would stay NaN.
    keys_.push_back(at::zeros({sequences, kv_heads, capacity, head_dim}, options));
    values_.push_back(at::zeros_like(keys_.back()));
  }
}

void KvCache::keep(const std::vector<int64_t>& sequences) {
  const at::Tensor rows = at::tensor(sequences, at::kLong).to(keys_.at(0).device());
  for (auto* tensors : {&keys_, &values_}) {
    for (at::Tensor& tensor : *tensors) tensor = tensor.index_select(0, rows);
  }
  std::vector<int64_t> lengths;
  for (const int64_t sequence : sequences) lengths.push_back(lengths_.at(static_cast<size_t>(sequence)));
  lengths_ = std::move(lengths);
}

void KvCache::clear(int64_t sequence) {
  lengths_.at(static_cast<size_t>(sequence)) = 0;
}

at::Tensor KvCache::attend(size_t layer, const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const std::vector<int32_t>& counts) {
  const bool one_each = std::all_of(counts.begin(), counts.end(), [](int32_t count) { return count == 1; });
  std::vector<at::Tensor> outputs;
  int64_t start = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t count = counts[i], past = lengths_[i], total = past + count;
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, start, count).transpose(0, 1);
    };  // [heads, n, D]
    const at::Tensor all_keys = keys_[layer][static_cast<int64_t>(i)],
                     all_values = values_[layer][static_cast<int64_t>(i)];
    all_keys.narrow(1, past, count).copy_(part(keys));
    all_values.narrow(1, past, count).copy_(part(values));
    if (one_each) {
      ++start;
      continue;
    }
    const bool is_first = past == 0;
    std::optional<at::Tensor> mask;
    if (!is_first) mask = at::ones({count, total}, queries.options().dtype(at::kBool)).tril(past);
    const at::Tensor out = at::scaled_dot_product_attention(
        part(queries).unsqueeze(0), all_keys.narrow(1, 0, total).unsqueeze(0),
        all_values.narrow(1, 0, total).unsqueeze(0), mask, 0, is_first, {}, queries.size(1) != keys.size(1));
    outputs.push_back(out.squeeze(0).transpose(0, 1).flatten(1));
    start += count;
  }
  return one_each ? attend_one_each(queries, keys_[layer], values_[layer]) : at::cat(outputs);
}

// The queries of a group of heads, one token, are the rows of one product with the keys that they share.
at::Tensor KvCache::attend_one_each(const at::Tensor& queries, const at::Tensor& keys,
                                    const at::Tensor& values) const {
  const auto [shortest, longest] = std::minmax_element(lengths_.begin(), lengths_.end());
  const int64_t total = *longest + 1;
  std::optional<at::Tensor> mask;
  if (*shortest != *longest) {
    const at::Tensor lengths = at::tensor(lengths_, at::kLong).to(queries.device()).view({-1, 1, 1, 1});
    mask = at::arange(total, lengths.options()) <= lengths;  // [B, 1, 1, total]
  }
  const at::Tensor grouped = queries.unflatten(1, {keys.size(1), -1});  // [B, Hkv, H / Hkv, D]
  return at::scaled_dot_product_attention(grouped, keys.narrow(2, 0, total), values.narrow(2, 0, total), mask)
      .flatten(1);
}

void KvCache::advance(const std::vector<int32_t>& counts) {
  for (size_t i = 0; i < counts.size(); ++i) lengths_[i] += counts[i];
}

}  // namespace trainer::model
