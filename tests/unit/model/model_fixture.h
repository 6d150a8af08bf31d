#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "job/job.h"
#include "model/bert.h"
#include "model/hf/weight_files.h"
#include "temporary_directory.h"

// tests/data/reference_bert, what transformers computes with it (tests/parity/make/bert_reference.py), and
// batches.

namespace trainer::model {

inline const std::filesystem::path kReferenceBert = std::filesystem::path(TEST_DATA) / "reference_bert";

inline Job tiny_job(spec::ProblemType problem = spec::ProblemType::kSingleLabel, int64_t num_labels = 3) {
  Job job;
  job.spec.model.pretrained = kReferenceBert.string();
  job.spec.model.problem_type = problem;
  job.spec.model.num_labels = num_labels;
  job.spec.data.max_length = 64;
  return job;
}

inline std::shared_ptr<BertClassifier> make_bert(const Job& job) {
  return std::dynamic_pointer_cast<BertClassifier>(make_model(job).model);
}

// Packed sequences of `lengths`, without labels.
inline data::Batch make_batch(const at::Tensor& lengths, at::Tensor input_ids, at::Tensor token_type_ids) {
  data::Batch batch;
  batch.input_ids = std::move(input_ids);
  batch.token_type_ids = std::move(token_type_ids);
  std::vector<at::Tensor> positions;
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    batch.seqlens.push_back(lengths[i].item<int32_t>());
    batch.samples.push_back(i);
    positions.push_back(at::arange(batch.seqlens.back(), at::kLong));
  }
  if (!positions.empty()) batch.position_ids = at::cat(positions);
  batch.cu_seqlens = at::constant_pad_nd(lengths.cumsum(0), {1, 0}).to(at::kInt);
  batch.row_keys = at::arange(batch.num_tokens(), at::kLong) * 7919 + 13;
  return batch;
}

inline data::Batch reference_batch(const SafetensorsFile& reference) {
  return make_batch(reference.tensor("lengths"), reference.tensor("input_ids"),
                    reference.tensor("token_type_ids"));
}

}  // namespace trainer::model
