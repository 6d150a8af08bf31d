#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// B sequences, N tokens in all of them: sequences stand end to end, no padding. Or B records of F sparse features.

namespace trainer::data {

// Click records.
struct Records {
  at::Tensor dense;    // [B, D] fp32
  at::Tensor ids;      // [n] int64: rows of the features' tables; all bags of feature 0, then of 1, ...
  at::Tensor offsets;  // [F B + 1] int64: where bags begin in ids; the last is n
  at::Tensor weights;  // [n] fp32; undefined: 1
  at::Tensor groups;   // [B] int64, of grouped metrics; undefined: none
};

// One micro-batch of one rank. Empty (B = N = 0) when the rank has no samples in this micro-batch: legal.
struct Batch {
  at::Tensor input_ids;       // [N] int64
  at::Tensor token_type_ids;  // [N] int64; undefined for language models
  at::Tensor position_ids;    // [N] int64, from 0 in each sequence
  at::Tensor cu_seqlens;      // [B+1] int32, starts of sequences; the last is N
  // [N] int64: dropout's random key of each token, f(seed, epoch, sample, position). Masks so depend neither
  // on the rank nor on the batch that a sample is in: any world size or accumulation draws the same ones.
  at::Tensor row_keys;
  // [B] int64; [B, L] float (multi-label); [B] or [B, L] float (regression); [N] int64, the next token of each or
  // -100 (language models); [B] fp32, 0 or 1 (recommenders)
  at::Tensor labels;
  Records records;               // of recommenders, and then nothing of the above but labels
  std::vector<int32_t> seqlens;  // [B], on the host
  std::vector<int64_t>
      samples;  // indices in the dataset; a sample has one sequence, or one for each document

  int64_t num_samples() const { return static_cast<int64_t>(samples.size()); }
  int64_t num_sequences() const { return static_cast<int64_t>(seqlens.size()); }
  int64_t num_tokens() const { return input_ids.defined() ? input_ids.size(0) : 0; }
};

}  // namespace trainer::data
