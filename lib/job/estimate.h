#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "job/job.h"

namespace trainer {

// The sizes of a BERT, from a Hugging Face config.json.
struct BertShape {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  int64_t type_vocab_size = 0;

  // Throws SpecError naming the file and the key.
  static BertShape load(const std::filesystem::path& config_json);

  // Of BertForSequenceClassification with its pooler.
  int64_t parameters(int64_t num_labels) const;
  // Multiply-accumulates × 2 of a forward pass over `sequences` of `tokens` each, as this program executes
  // it: the last layer's output and MLP are computed for first tokens only. No padding.
  double forward_flops(double sequences, double tokens, int64_t num_labels) const;
};

// What is known of the training samples; 0: not known.
struct DataSize {
  int64_t samples = 0;
  double mean_tokens = 0;  // special tokens included, after truncation
};

// What a job will take, worked out from its spec alone.
struct Estimate {
  int64_t parameters = 0;
  int64_t trainable = 0;
  // Bytes a rank.
  int64_t weight_bytes = 0;  // fp32, and a copy of the matrices in the compute type
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t activation_bytes =
      0;  // of one micro-batch whose sequences all have max_length tokens: an upper bound
  double tokens_per_sequence = 0;  // mean that step_flops assumes: DataSize's, else max_length
  double step_flops = 0;           // of all ranks: forward and backward (2 × forward) of all micro-batches
  int64_t steps_per_epoch = 0;     // 0: not known
  int64_t steps = 0;               // of optimizer, in all; 0: not known

  int64_t total_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes + activation_bytes; }
};

// Reads model.pretrained's config.json. Throws SpecError.
Estimate estimate(const Job& job, const DataSize& data = {});

// The resolved job as a table for people: `trainer check`, and the header of a run.
std::string describe(const Job& job, const Estimate& estimate, const DataSize& data = {});

}  // namespace trainer
