#include "job/estimate.h"

#include <algorithm>

#include "core/error.h"
#include "core/math.h"
#include "job/bert_config.h"
#include "job/faults.h"
#include "spec/describe.h"

namespace trainer {
namespace {

// Matrices of the encoder's linear layers. Where ATen multiplies (on GPUs, and in fp16), each use casts one
// to the compute type and keeps the copy for backward; our CPU kernels cast while they pack, into scratch
// memory.
int64_t matrix_parameters(const BertConfig& b) {
  return b.num_hidden_layers * (4 * b.hidden_size * b.hidden_size + 2 * b.hidden_size * b.intermediate_size);
}

int64_t state_per_parameter(const spec::Optimizer& o) {
  switch (o.type) {
    case spec::OptimizerType::kAdamW:
      return 2;
    case spec::OptimizerType::kAdagrad:
      return 1;
    case spec::OptimizerType::kSgd:
      return o.momentum > 0 ? 1 : 0;
  }
  return 0;
}

// Kept for backward, a token and layer: two fp32 residuals; in the compute type the inputs of the linear
// layers (also of the output of attention), q, k, v, the outputs that dropout and norm read, and the MLP's
// middle before and after GELU. Dropout keeps no masks, attention no probabilities.
int64_t activation_bytes_per_token(const BertConfig& b, int64_t compute_bytes) {
  const int64_t copies = compute_bytes < 4 ? 2 : 0;  // of the residuals, as inputs of linear layers
  return 2 * 4 * b.hidden_size + compute_bytes * ((6 + copies) * b.hidden_size + 2 * b.intermediate_size);
}

}  // namespace

Estimate estimate(const Job& job, const DataSize& data) {
  const auto& spec = job.spec;
  const auto& train = spec.train;
  const BertConfig config = load_bert_config(job);
  const int64_t compute_bytes = train.precision == spec::Precision::kFp32 ? 4 : 2;
  Estimate e;
  const auto weights = config.weights(spec.model.num_labels);
  const auto rest = config.biases_and_norms(spec.model.num_labels);
  e.parameters = e.trainable = weights.count + rest.count;
  (spec.optimizer.decay_bias_and_norm ? e.decayed : e.spared) += rest;
  e.decayed += weights;
  const bool copies =
      train.precision == spec::Precision::kFp16 || (train.precision == spec::Precision::kBf16 && job.cuda);
  e.weight_bytes = 4 * e.parameters + (copies ? compute_bytes * matrix_parameters(config) : 0);
  e.gradient_bytes = 4 * e.trainable;
  e.optimizer_bytes = 4 * state_per_parameter(spec.optimizer) * e.trainable;
  const int64_t most_tokens =
      train.batch_tokens > 0 ? train.batch_tokens : train.batch_size * spec.data.max_length;
  e.activation_bytes = static_cast<double>(most_tokens) * static_cast<double>(config.num_hidden_layers) *
                       static_cast<double>(activation_bytes_per_token(config, compute_bytes));
  e.tokens_per_sequence = data.mean_tokens > 0 ? data.mean_tokens : static_cast<double>(spec.data.max_length);
  double sequences = static_cast<double>(job.global_batch);
  if (train.batch_tokens > 0) {
    const double limit = static_cast<double>(train.batch_tokens) / e.tokens_per_sequence;
    sequences = std::min(limit, static_cast<double>(train.batch_size)) *
                static_cast<double>(train.gradient_accumulation * job.world.size);
  } else if (data.samples > 0) {
    e.steps_per_epoch = ceil_div(data.samples, job.global_batch);
  }
  const double tokens = sequences * e.tokens_per_sequence;
  e.step_flops =
      3 * config.forward_flops(sequences, tokens, tokens * e.tokens_per_sequence, spec.model.num_labels);
  e.steps = data.steps > 0 ? data.steps : train.steps.value_or(train.epochs.value_or(0) * e.steps_per_epoch);
  if (e.steps > static_cast<int64_t>(spec::kMostSteps)) {
    JobFaults faults(spec.said);
    faults.add("train.epochs", "got {}, {} steps in all; expected at most {}", train.epochs.value_or(0),
               e.steps, spec::kMostSteps);
    faults.throw_if_any();
  }
  return e;
}

}  // namespace trainer
