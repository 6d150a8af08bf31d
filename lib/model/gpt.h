#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job/gpt_config.h"
#include "kernels/ops.h"
#include "model/hf/directory.h"
#include "model/hf/weights.h"
#include "model/kv_cache.h"
#include "model/layers.h"

namespace trainer::model {

// transformers' GPT2LMHeadModel (Radford et al. 2019) or LlamaForCausalLM (Touvron et al. 2023,
// arXiv:2302.13971) over packed tokens, by its config's form: pre-norm blocks of causal attention and an MLP.
// Parameters have transformers' names, but queries, keys and values are one ("...self_attn.qkv_proj.weight"
// [(H + 2 Hkv) D, C]), so are gate and up, and all weights are [C_out, C_in]. The loss is the sum of
// next-token cross-entropies over batch.labels [N] (-100: none); logits never exist whole, so Output has
// none.
class Gpt : public HfModel {
 public:
  struct Options {
    at::ScalarType compute_dtype = at::kFloat;
    spec::Recompute recompute = spec::Recompute::kNone;
    Files tokenizer_files;
  };

  // Parameters are allocated, not initialized: see hf/weights.h.
  Gpt(GptConfig config, Options options);

  Output forward(const data::Batch& batch) override;
  double forward_flops(const data::Batch& batch) const override;
  std::optional<kernels::AttentionShape> attention_shape() const override;
  bool is_bias_or_norm(const std::string& parameter_name) const override;
  void save_pretrained(const std::filesystem::path& directory) const override;

  // Of every token, without gradients or labels: [N, V] fp32.
  at::Tensor logits(const data::Batch& batch) const;
  // Reads on: the next tokens `ids` of each of the cache's sequences (one or more each). Returns the logits
  // of each sequence's last token, [B, V] fp32. No gradients. Throws DataError when the cache is full.
  at::Tensor decode(const std::vector<std::vector<int64_t>>& ids, KvCache& cache) const;
  // For `sequences` of at most `capacity` tokens each.
  KvCache make_cache(int64_t sequences, int64_t capacity) const;

  // Without the rows that pad the vocabulary, which are zeros.
  NamedTensors hf_views(const std::vector<at::Tensor>& per_parameter) const override;
  void initialize(const std::string& hf_name, const at::Tensor& weight,
                  at::Generator& generator) const override;
  std::vector<std::string> aliases(const std::string& hf_name) const override;
  bool is_ignored(const std::string& file_name) const override;
  std::string kind() const override { return config_.is_llama() ? "Llama" : "GPT-2"; }
  std::string shape_hint() const override { return "config.json and the weights belong together"; }

  const GptConfig& config() const { return config_; }

 private:
  struct Layer {
    Affine attention_norm, qkv, attention_output, mlp_norm, up, down;  // `up` is gate and up in SwiGLU
  };
  // Between blocks: the last MLP's output [N, C] (undefined: none yet), not yet added to the residual [N, C]
  // fp32.
  struct Stream {
    at::Tensor x, residual;
  };

  kernels::Norm norm(const Affine& affine) const;
  Stream embed(const data::Batch& batch) const;
  Stream block(size_t layer, const Stream& in, const data::Batch& batch, KvCache* cache) const;
  Stream recomputed_block(size_t layer, const Stream& in,
                          const std::shared_ptr<const data::Batch>& batch) const;
  at::Tensor mlp(const Layer& layer, const at::Tensor& x) const;
  // The final norm's output, [N, C] in the compute type.
  at::Tensor hidden(const data::Batch& batch, KvCache* cache = nullptr) const;
  at::Tensor head_logits(const at::Tensor& hidden) const;

  GptConfig config_;
  Options options_;
  at::Tensor word_embeddings_, position_embeddings_, rope_table_, head_;
  Affine final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace trainer::model
