#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/job.h"
#include "records/feature_info.h"

namespace trainer {

struct ParameterCount {
  int64_t count = 0, tensors = 0;
  bool operator==(const ParameterCount&) const = default;
  ParameterCount& operator+=(const ParameterCount& other) {
    count += other.count;
    tensors += other.tensors;
    return *this;
  }
};

// What is known of the training samples; 0: not known.
struct DataSize {
  int64_t samples = 0;
  double mean_tokens = 0;  // special tokens included, after truncation
  int64_t steps = 0;       // of optimizer, in the whole job
  int64_t tokenizer_vocab_size = 0;
  std::optional<records::FeatureInfo> features = {};  // of a recommender
};

// What an estimate asks of the job's model.
struct ModelCost {
  ParameterCount weights, biases_and_norms;
  int64_t matrix_parameters = 0;  // of its linear layers
  double forward_flops = 0;       // of one sequence, or record
  // Of a micro-batch of records, or of sequences that all have max_length tokens.
  double activation_bytes = 0;
  double first_gradient_bytes =
      0;                        // of the parameters whose gradients are made while all activations are there
  double scratch_bytes = 0;     // of the CPU's kernels
  double evaluation_bytes = 0;  // of an evaluation's batch, without gradients
};

// Embedding tables, over all ranks.
struct TableCost {
  int64_t parameters = 0, tables = 0;
  bool knows_rows = true;  // else some wait for a vocabulary: they are not counted, and there is no plan
  // Bytes of the rank that holds the most.
  int64_t weight_bytes = 0, optimizer_bytes = 0, gradient_bytes = 0;
  std::string plan = {};  // for people: several lines
};

// What a job will take, worked out from its spec alone.
struct Estimate {
  int64_t parameters = 0;  // but those of tables
  int64_t trainable = 0;
  ParameterCount decayed, spared;  // by optimizer.weight_decay
  // Bytes a rank.
  int64_t weight_bytes = 0;  // fp32, and copies of matrices that backward keeps in the compute type
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t mean_bytes = 0;  // of the weights' running mean (train.ema_decay)
  std::optional<TableCost> tables;
  std::string model;          // of a recommender: its layers, for people
  int64_t program_bytes = 0;  // on a CPU: the program and its libraries, measured
  // Of one micro-batch whose sequences all have max_length tokens, beside the others and with what the
  // allocator may hold: an upper bound.
  double activation_bytes = 0;
  double tokens_per_sequence = 0;  // mean that step_flops assumes: DataSize's, else max_length
  double step_flops = 0;           // of all ranks: forward and backward (2 × forward) of all micro-batches
  int64_t steps_per_epoch = 0;     // 0: not known
  int64_t steps = 0;               // of optimizer, in all; 0: not known

  double total_bytes() const {
    const int64_t table_bytes =
        tables ? tables->weight_bytes + tables->optimizer_bytes + tables->gradient_bytes : 0;
    return static_cast<double>(weight_bytes + gradient_bytes + optimizer_bytes + mean_bytes + table_bytes +
                               program_bytes) +
           activation_bytes;
  }
};

// Reads model.pretrained's config.json. Throws SpecError.
Estimate estimate(const Job& job, const DataSize& data = {});

// The resolved job as a table for people: `trainer check`, and the header of a run. `machine`: this node, in
// a line; empty: not told.
std::string describe(const Job& job, const Estimate& estimate, const DataSize& data = {},
                     const std::string& machine = "");

}  // namespace trainer
