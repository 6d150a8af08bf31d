#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/estimate.h"
#include "job/job.h"

namespace trainer {

// Rotations of lower frequencies, for sequences longer than those first trained on; as in transformers.
struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3 } type = Type::kNone;
  double factor = 1;
  // Of kLlama3: frequencies between original_max_positions / high_freq_factor and ... / low_freq_factor
  // positions a turn are between scaled and not.
  double low_freq_factor = 1, high_freq_factor = 4;
  double original_max_positions = 8192;
};

// A decoder in one of two forms that transformers has a class for: GPT-2's (GPT2LMHeadModel: learned
// positions, LayerNorm, GELU or ReLU) and Llama's (LlamaForCausalLM: RoPE, RMSNorm, SwiGLU, grouped-query
// attention). Defaults are those of GPT-2 (124M).
struct GptConfig {
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;
  int64_t head_dim = 64;
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t max_positions = 1024;
  int64_t vocab_size = 50257;
  int64_t pad_vocab_to = 1;
  spec::Norm norm = spec::Norm::kLayer;
  double norm_eps = 1e-5;
  spec::Activation activation = spec::Activation::kGeluTanh;
  spec::Positions positions = spec::Positions::kLearned;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  // Of GPT-2's form both, and the norms': transformers' has all of them, so that without them zeros are
  // saved.
  bool attention_bias = true, mlp_bias = true;
  bool tie_embeddings = true;
  double embedding_dropout = 0.1;
  double residual_dropout = 0.1;
  double attention_dropout = 0.1;
  double initializer_range = 0.02;
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::string json;  // as read: what is not above is kept when the model is saved; empty: a new model

  // A directory's config.json, of model_type gpt2 or llama. Throws SpecError with every fault of the file: it is not
  // one `expected`.
  static GptConfig load(const std::filesystem::path& path, const char* expected = "that can be trained");
  // kNone: GPT-2 (124M). Without dropout.
  static GptConfig preset(spec::GptPreset preset);

  bool is_llama() const { return positions == spec::Positions::kRope; }
  bool is_gated() const { return activation == spec::Activation::kSwiglu; }
  bool has_norm_bias() const { return norm == spec::Norm::kLayer && attention_bias; }
  // Of the embedding and the output layer: vocab_size, rounded up. Those over are zeros, no classes, and not
  // saved.
  int64_t vocab_rows() const;
  int64_t qkv_size() const { return (heads + 2 * kv_heads) * head_dim; }

  // Embeddings and the weights of linear layers; biases and norms. Queries, keys and values are one tensor,
  // as are gate and up.
  ParameterCount weights() const;
  ParameterCount biases_and_norms() const;
  // Multiply-accumulates × 2 of a forward pass as this program executes it, without the rows that pad the output
  // layer. `pairs`: of tokens of which one attends to the other, the sum of L (L + 1) / 2.
  double forward_flops(double tokens, double pairs) const;
  // The config.json of a saved model.
  std::string to_hf_json() const;
};

class JobFaults;

// The config of the job's model: of model.pretrained, or the preset with model.gpt's keys over it. Adds every
// fault, by key. `tokenizer_vocab_size`: 0: not known; else ids below it must have embeddings, and it is the
// vocabulary of a new model that says none.
GptConfig load_gpt_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size = 0);
// Throws them as SpecError.
GptConfig load_gpt_config(const Job& job, int64_t tokenizer_vocab_size = 0);

// `sequence_tokens`: length of the sequence that forward_flops is of. Throws SpecError.
ModelCost gpt_cost(const Job& job, double sequence_tokens, int64_t tokenizer_vocab_size);

}  // namespace trainer
