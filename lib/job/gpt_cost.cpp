#include <algorithm>

#include "job/gpt_config.h"

// What a GPT's training holds in memory beside weights, gradients and optimizer; on a CPU by the fused
// kernels. N tokens of a micro-batch, C channels, I intermediate channels, V rows of the vocabulary.

namespace trainer {
namespace {

struct PerToken {
  int64_t kept = 0;    // bytes of a layer that backward reads; kernels keep no probabilities and no masks
  int64_t within = 0;  // most at a time beside it while a layer's backward runs
  int64_t scratch = 0;
  int64_t forward = 0;  // most at a time without gradients
};

// Ids, positions, labels and keys of this batch, and of the next one, which is made ahead.
constexpr int64_t kBatch = 2 * 4 * 8;

// `b`: bytes of the compute type.
PerToken layer_bytes(const GptConfig& c, int64_t b, spec::Recompute recompute) {
  const int64_t up = (c.is_gated() ? 2 : 1) * c.intermediate_size;
  const int64_t mlp = b * (up + c.intermediate_size);  // before and after the activation
  const int64_t residual_and_norm = (4 + b) * c.hidden_size;
  const int64_t attention = b * (c.qkv_size() + c.heads * c.head_dim) + 4 * c.heads;  // softmax's sums
  PerToken bytes{.kept = 2 * residual_and_norm + attention + mlp,
                 .within = residual_and_norm + b * up,
                 .scratch = b * (std::max(up, c.qkv_size()) + c.intermediate_size),
                 .forward = 2 * residual_and_norm + attention + mlp + kBatch};
  if (recompute == spec::Recompute::kMlp) bytes.kept -= mlp, bytes.within += mlp;
  if (recompute == spec::Recompute::kBlock) {
    bytes.within += bytes.kept;
    bytes.kept = residual_and_norm;  // what goes in
  }
  return bytes;
}

// kernels::linear_cross_entropy: logits of some rows, fp32, with their gradients in the compute type.
double logits_bytes(const GptConfig& c, int64_t b, double tokens, bool cuda) {
  const auto rows = static_cast<double>(c.vocab_rows());
  const double chunk = std::min(tokens, std::max(256.0, (cuda ? 1 << 27 : 1 << 22) / rows));
  return chunk * rows * static_cast<double>(b == 4 && !cuda ? 4 : 4 + b);
}

}  // namespace

ModelCost gpt_cost(const Job& job, double sequence_tokens, int64_t tokenizer_vocab_size) {
  const GptConfig c = load_gpt_config(job, tokenizer_vocab_size);
  const auto& train = job.spec.train;
  const int64_t linear = c.qkv_size() + c.heads * c.head_dim + (c.is_gated() ? 3 : 2) * c.intermediate_size;
  const int64_t b = train.precision == spec::Precision::kFp32 ? 4 : 2;
  const PerToken layer = layer_bytes(c, b, train.recompute);
  const auto length = static_cast<double>(job.spec.data.max_length);
  const double tokens = static_cast<double>(train.batch_size) * length;
  const double evaluation_tokens =
      job.evaluation_every < 0 ? 0 : static_cast<double>(job.spec.evaluation.batch_size) * length;
  const auto channels = static_cast<double>(c.hidden_size);
  const int64_t widest = std::max((c.is_gated() ? 2 : 1) * c.intermediate_size, c.qkv_size());
  // In the output layer; else in a layer's backward, with the gradient of a weight before it is added.
  const double within =
      std::max(logits_bytes(c, b, tokens, job.cuda) + tokens * static_cast<double>(4 + 2 * b) * channels,
               tokens * static_cast<double>(layer.within) + 4 * channels * static_cast<double>(widest));
  return {.weights = c.weights(),
          .biases_and_norms = c.biases_and_norms(),
          .matrix_parameters = (c.layers * linear + c.vocab_rows()) * c.hidden_size,
          .forward_flops = c.forward_flops(sequence_tokens, sequence_tokens * (sequence_tokens + 1) / 2),
          .activation_bytes = tokens * static_cast<double>(c.layers * layer.kept) + within,
          .first_gradient_bytes = 4 * static_cast<double>(c.vocab_rows()) * channels,
          // Packed operands, which stay with their thread and may be a quarter larger.
          .scratch_bytes = 1.25 * (tokens * static_cast<double>(layer.scratch) +
                                   channels * static_cast<double>(b * widest)),
          .evaluation_bytes = evaluation_tokens * static_cast<double>(layer.forward) +
                              logits_bytes(c, b, evaluation_tokens, job.cuda)};
}

}  // namespace trainer
