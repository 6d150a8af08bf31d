#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trainer::model {

// The keys (rotated) and values of the tokens so far of B sequences, of every layer. For Gpt::decode.
class KvCache {
 public:
  // `capacity`: tokens a sequence. Memory: 2 × layers × B × kv_heads × capacity × head_dim elements.
  KvCache(int64_t layers, int64_t sequences, int64_t kv_heads, int64_t capacity, int64_t head_dim,
          const at::TensorOptions& options);

  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens so far, of each sequence
  int64_t capacity() const { return capacity_; }

  // Drops all sequences but these, which then are 0, 1, ...: those that have ended cost nothing more.
  void keep(const std::vector<int64_t>& sequences);
  // Forgets the tokens of one.
  void clear(int64_t sequence);

  // Of one layer: adds the keys and values of `counts` new tokens of each sequence, packed [N, Hkv, D], and
  // attends with their queries [N, H, D]: causal within each sequence. Returns [N, H D].
  at::Tensor attend(size_t layer, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    const std::vector<int32_t>& counts);
  // After the last layer.
  void advance(const std::vector<int32_t>& counts);

 private:
  at::Tensor attend_one_each(const at::Tensor& queries, const at::Tensor& keys,
                             const at::Tensor& values) const;

  int64_t capacity_;
  std::vector<int64_t> lengths_;
  std::vector<at::Tensor> keys_, values_;  // a layer: [B, Hkv, capacity, D]
};

}  // namespace trainer::model
