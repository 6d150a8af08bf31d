#pragma once

#include <memory>
#include <vector>

#include "job/job.h"
#include "model/gpt.h"

// Small GPTs of both forms with weights larger than those of training's start, and ragged batches with
// labels.

namespace trainer::model {

inline Job gpt_job(bool llama, double dropout = 0) {
  Job job;
  job.spec.model.type = spec::ModelType::kGpt;
  job.spec.model.init = spec::ModelInit::kRandom;
  job.spec.model.hidden_dropout = job.spec.model.attention_dropout = dropout;
  job.spec.data.max_length = 40;
  spec::Gpt& gpt = job.spec.model.gpt;
  gpt.layers = 2, gpt.heads = 4, gpt.hidden_size = 32, gpt.intermediate_size = 48, gpt.vocab_size = 100;
  if (llama) {
    gpt.kv_heads = 2, gpt.norm = spec::Norm::kRms, gpt.positions = spec::Positions::kRope;
    gpt.activation = spec::Activation::kSwiglu, gpt.bias = false, gpt.tie_embeddings = false;
  }
  return job;
}

inline std::shared_ptr<Gpt> make_gpt(const Job& job) {
  auto model = std::dynamic_pointer_cast<Gpt>(make_model(job).model);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 2) parameter.mul_(5);
  }
  return model;
}

inline data::Batch gpt_batch(const std::vector<int32_t>& lengths, int64_t vocab_size = 100) {
  data::Batch batch;
  std::vector<int32_t> starts{0};
  std::vector<int64_t> positions;
  for (const int32_t length : lengths) {
    starts.push_back(starts.back() + length);
    for (int64_t position = 0; position < length; ++position) positions.push_back(position);
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  batch.seqlens = lengths;
  batch.cu_seqlens = at::tensor(starts, at::kInt);
  batch.position_ids = at::tensor(positions, at::kLong);
  batch.input_ids = at::arange(tokens, at::kLong) * 37 % vocab_size;
  batch.labels = at::arange(tokens, at::kLong) * 53 % vocab_size;
  batch.labels.slice(0, 0, tokens, 7).fill_(kernels::kIgnoredLabel);
  batch.row_keys = at::arange(tokens, at::kLong) * 7919 + 13;
  return batch;
}

}  // namespace trainer::model
