#include <algorithm>

#include "job/gpt_config.h"

// What a GPT's training keeps in memory, on a CPU by the fused kernels, on a GPU by ATen.
// N tokens of a micro-batch, C channels, I intermediate channels, V rows of the vocabulary.

namespace trainer {
namespace {

// Bytes kept for backward, a token and layer; `b`: bytes of the compute type. Kernels keep no probabilities and no
// masks.
int64_t layer_bytes(const GptConfig& c, int64_t b, spec::Recompute recompute) {
  if (recompute == spec::Recompute::kBlock) return 4 * c.hidden_size + b * c.hidden_size;  // the residual, x
  const int64_t context = c.heads * c.head_dim;
  int64_t bytes = 2 * (4 + b) * c.hidden_size;          // twice the residual and its norm
  bytes += b * (c.qkv_size() + context) + 4 * c.heads;  // attention's operands, result and softmax's sums
  // Before and after the activation.
  if (recompute == spec::Recompute::kNone) bytes += b * (c.is_gated() ? 3 : 2) * c.intermediate_size;
  return bytes;
}

// Beyond what is kept for backward, a token: gradients within a layer; and the layer that is computed again.
int64_t transient_bytes(const GptConfig& c, int64_t b, spec::Recompute recompute) {
  const int64_t wide = (c.is_gated() ? 3 : 2) * c.intermediate_size;
  int64_t bytes = 2 * (4 + b) * c.hidden_size + b * wide;
  if (recompute != spec::Recompute::kNone) {
    bytes += layer_bytes(c, b, spec::Recompute::kNone) - layer_bytes(c, b, recompute);
  }
  return bytes;
}

// Of kernels::linear_cross_entropy: the gradient of its weight, and the logits of as many rows as exist at a time.
double head_bytes(const GptConfig& c, double tokens, int64_t b, bool cuda) {
  const auto rows = static_cast<double>(c.vocab_rows());
  const double chunk =
      std::min(tokens, std::max(256.0, static_cast<double>(cuda ? 1 << 27 : 1 << 24) / rows));
  return rows * static_cast<double>(c.hidden_size) * 4 + chunk * rows * (cuda ? 8 : b == 2 ? 6 : 4);
}

}  // namespace

ModelCost gpt_cost(const Job& job, double sequence_tokens, int64_t tokenizer_vocab_size) {
  const GptConfig c = load_gpt_config(job, tokenizer_vocab_size);
  const auto& train = job.spec.train;
  const int64_t b = train.precision == spec::Precision::kFp32 ? 4 : 2;
  const auto tokens = static_cast<double>(train.batch_size * job.spec.data.max_length);
  const int64_t per_token = c.layers * layer_bytes(c, b, train.recompute) +
                            transient_bytes(c, b, train.recompute) + 2 * (4 + b) * c.hidden_size;
  const int64_t linear = c.qkv_size() + c.heads * c.head_dim + (c.is_gated() ? 3 : 2) * c.intermediate_size;
  return {.weights = c.weights(),
          .biases_and_norms = c.biases_and_norms(),
          .matrix_parameters = c.layers * linear * c.hidden_size + c.vocab_rows() * c.hidden_size,
          .forward_flops = c.forward_flops(sequence_tokens, sequence_tokens * (sequence_tokens + 1) / 2),
          .activation_bytes = tokens * static_cast<double>(per_token) + head_bytes(c, tokens, b, job.cuda)};
}

}  // namespace trainer
