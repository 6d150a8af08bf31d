#include "model/gpt.h"

#include <cmath>

#include "core/error.h"
#include "model/embedding.h"
#include "model/recompute.h"
#include "model/rope.h"

// B sequences, N tokens in all of them, C channels, I intermediate channels, H heads, Hkv key and value
// heads, D channels a head, V tokens in the vocabulary.

namespace trainer::model {
namespace {

using spec::Activation;

// Types are ours: a caller's autocast, off in backward, would make what is computed again another.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

std::vector<at::Tensor> defined(std::initializer_list<Affine> affines) {
  std::vector<at::Tensor> tensors;
  for (const Affine& affine : affines) {
    tensors.push_back(affine.weight);
    if (affine.bias.defined()) tensors.push_back(affine.bias);
  }
  return tensors;
}

bool is_vocabulary(const std::string& name) {
  return name.ends_with("wte.weight") || name.ends_with("embed_tokens.weight") || name == "lm_head.weight";
}

}  // namespace

Gpt::Gpt(GptConfig config, Options options) : config_(std::move(config)), options_(std::move(options)) {
  const GptConfig& c = config_;
  const bool llama = c.is_llama();
  const int64_t channels = c.hidden_size, wide = c.intermediate_size, context = c.heads * c.head_dim;
  const std::string trunk = llama ? "model." : "transformer.";
  const auto name = [&](const char* in_gpt2, const char* in_llama) {
    return trunk + (llama ? in_llama : in_gpt2);
  };
  const auto norm = [&](const std::string& path) {
    return add_affine(*this, path, {channels}, c.has_norm_bias());
  };
  const auto vocabulary = [&](const std::string& path) {
    const at::Tensor weight = add_parameter(*this, path, {c.vocab_rows(), channels});
    const at::NoGradGuard no_grad;
    weight.slice(0, c.vocab_size).zero_();
    return weight;
  };
  word_embeddings_ = vocabulary(name("wte.weight", "embed_tokens.weight"));
  if (llama) {
    rope_table_ = register_buffer("rope", rope_table(c));
  } else {
    position_embeddings_ = add_parameter(*this, trunk + "wpe.weight", {c.max_positions, channels});
  }
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto in_layer = [&](const char* in_gpt2, const char* in_llama) {
      return fmt::format("{}.{}.{}", name("h", "layers"), i, llama ? in_llama : in_gpt2);
    };
    const auto linear = [&](const std::string& path, int64_t out, int64_t in, bool bias) {
      return add_affine(*this, path, {out, in}, bias);
    };
    layers_.push_back({.attention_norm = norm(in_layer("ln_1", "input_layernorm")),
                       .qkv = linear(in_layer("attn.c_attn", "self_attn.qkv_proj"), c.qkv_size(), channels,
                                     c.attention_bias),
                       .attention_output = linear(in_layer("attn.c_proj", "self_attn.o_proj"), channels,
                                                  context, c.attention_bias),
                       .mlp_norm = norm(in_layer("ln_2", "post_attention_layernorm")),
                       .up = linear(in_layer("mlp.c_fc", "mlp.gate_up_proj"), c.is_gated() ? 2 * wide : wide,
                                    channels, c.mlp_bias),
                       .down = linear(in_layer("mlp.c_proj", "mlp.down_proj"), channels, wide, c.mlp_bias)});
  }
  final_norm_ = norm(name("ln_f", "norm"));
  head_ = c.tie_embeddings ? word_embeddings_ : vocabulary("lm_head.weight");
}

kernels::Norm Gpt::norm(const Affine& affine) const {
  return {.weight = affine.weight,
          .bias = affine.bias,
          .eps = config_.norm_eps,
          .rms = config_.norm == spec::Norm::kRms};
}

Gpt::Stream Gpt::embed(const data::Batch& batch) const {
  at::Tensor sum = word_embedding(word_embeddings_, batch.input_ids, -1);
  if (position_embeddings_.defined()) sum = sum + at::embedding(position_embeddings_, batch.position_ids);
  return {{}, kernels::dropout(sum, dropout_of(*this, config_.embedding_dropout, batch.row_keys, 0))};
}

at::Tensor Gpt::mlp(const Layer& layer, const at::Tensor& x) const {
  at::Tensor wide = kernels::linear(x, layer.up.weight, layer.up.bias, fused_activation(config_.activation));
  if (config_.is_gated()) wide = kernels::swiglu(wide);
  return kernels::linear(wide, layer.down.weight, layer.down.bias);
}

Gpt::Stream Gpt::block(size_t i, const Stream& in, const data::Batch& batch, KvCache* cache) const {
  const Layer& layer = layers_[i];
  // Sites of dropout: 0 the embedding's, then three a layer: the MLP's before it, attention's weights and
  // output.
  const auto site = static_cast<uint32_t>(3 * i);
  const auto residual_dropout = [&](uint32_t at) {
    return dropout_of(*this, config_.residual_dropout, batch.row_keys, at);
  };
  auto [residual, x] = kernels::dropout_add_norm(in.x, in.residual, norm(layer.attention_norm),
                                                 options_.compute_dtype, residual_dropout(site));
  const at::Tensor qkv = kernels::linear(x, layer.qkv.weight, layer.qkv.bias);
  const kernels::Rope rope{.cos_sin = rope_table_, .position_ids = batch.position_ids};
  at::Tensor context;
  if (cache != nullptr) {
    const auto parts = qkv.unflatten(1, {-1, config_.head_dim})
                           .split_with_sizes({config_.heads, config_.kv_heads, config_.kv_heads}, 1);
    const auto turned = [&](const at::Tensor& heads) {
      return rope_table_.defined() ? kernels::rotate(heads, rope) : heads;
    };
    context = cache->attend(i, turned(parts[0]), turned(parts[1]), parts[2], batch.seqlens);
  } else {
    context =
        kernels::causal_attention(qkv, batch.cu_seqlens, batch.seqlens, config_.heads, config_.kv_heads, rope,
                                  dropout_of(*this, config_.attention_dropout, batch.row_keys, site + 1));
  }
  std::tie(residual, x) = kernels::dropout_add_norm(
      kernels::linear(context, layer.attention_output.weight, layer.attention_output.bias), residual,
      norm(layer.mlp_norm), options_.compute_dtype, residual_dropout(site + 2));
  if (options_.recompute == spec::Recompute::kMlp) {
    const auto compute = [this, i](const auto& inputs) { return std::vector{mlp(layers_[i], inputs[0])}; };
    return {recompute(compute, {x}, defined({layer.up, layer.down}))[0], residual};
  }
  return {mlp(layer, x), residual};
}

Gpt::Stream Gpt::recomputed_block(size_t i, const Stream& in,
                                  const std::shared_ptr<const data::Batch>& batch) const {
  const auto compute = [this, i, batch](const std::vector<at::Tensor>& inputs) {
    const Stream out = block(i, {inputs.size() == 2 ? inputs[1] : at::Tensor(), inputs[0]}, *batch, nullptr);
    return std::vector{out.residual, out.x};
  };
  std::vector<at::Tensor> inputs{in.residual};
  if (in.x.defined()) inputs.push_back(in.x);
  const Layer& l = layers_[i];
  const auto out = recompute(
      compute, inputs, defined({l.attention_norm, l.qkv, l.attention_output, l.mlp_norm, l.up, l.down}));
  return {out[1], out[0]};
}

at::Tensor Gpt::hidden(const data::Batch& batch, KvCache* cache) const {
  Stream stream = embed(batch);
  const bool recomputes = options_.recompute == spec::Recompute::kBlock && cache == nullptr;
  const auto kept = recomputes ? std::make_shared<const data::Batch>(batch) : nullptr;  // until backward
  for (size_t i = 0; i < layers_.size(); ++i) {
    stream = recomputes ? recomputed_block(i, stream, kept) : block(i, stream, batch, cache);
  }
  const auto site = static_cast<uint32_t>(3 * layers_.size());
  return kernels::dropout_add_norm(stream.x, stream.residual, norm(final_norm_), options_.compute_dtype,
                                   dropout_of(*this, config_.residual_dropout, batch.row_keys, site))
      .second;
}

Output Gpt::forward(const data::Batch& batch) {
  if (batch.num_tokens() == 0) return {.loss_sum = zero_of(parameters()), .logits = {}};
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  return {.loss_sum = kernels::linear_cross_entropy(hidden(batch), head_, batch.labels, config_.vocab_size),
          .logits = {}};
}

at::Tensor Gpt::head_logits(const at::Tensor& hidden) const {
  return kernels::linear(hidden, head_.narrow(0, 0, config_.vocab_size), {}).to(at::kFloat);
}

at::Tensor Gpt::logits(const data::Batch& batch) const {
  const at::NoGradGuard no_grad;
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  return head_logits(hidden(batch));
}

at::Tensor Gpt::decode(const std::vector<std::vector<int64_t>>& ids, KvCache& cache) const {
  const at::NoGradGuard no_grad;
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  data::Batch batch;
  std::vector<int64_t> tokens, positions, last;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t past = cache.lengths().at(i), count = static_cast<int64_t>(ids[i].size());
    if (count == 0 || past + count > cache.capacity()) {
      fail<DataError>("sequence {}: got {} tokens after {}; expected at least one, and at most {} in all", i,
                      count, past, cache.capacity());
    }
    batch.seqlens.push_back(static_cast<int32_t>(count));
    tokens.insert(tokens.end(), ids[i].begin(), ids[i].end());
    for (int64_t n = 0; n < count; ++n) positions.push_back(past + n);
    last.push_back(static_cast<int64_t>(tokens.size()) - 1);
  }
  const auto on_device = [&](const std::vector<int64_t>& list) {
    return at::tensor(list, at::kLong).to(word_embeddings_.device());
  };
  batch.input_ids = on_device(tokens);
  batch.position_ids = on_device(positions);
  const at::Tensor rows = hidden(batch, &cache).index_select(0, on_device(last));
  cache.advance(batch.seqlens);
  return head_logits(rows);
}

KvCache Gpt::make_cache(int64_t sequences, int64_t capacity) const {
  return {config_.layers,   sequences,
          config_.kv_heads, capacity,
          config_.head_dim, word_embeddings_.options().dtype(options_.compute_dtype).requires_grad(false)};
}

double Gpt::forward_flops(const data::Batch& batch) const {
  double tokens = 0, pairs = 0;
  for (const double length : batch.seqlens) tokens += length, pairs += length * (length + 1) / 2;
  return config_.forward_flops(tokens, pairs);
}

std::optional<kernels::AttentionShape> Gpt::attention_shape() const {
  return kernels::AttentionShape{.heads = config_.heads,
                                 .kv_heads = config_.kv_heads,
                                 .head_dim = config_.head_dim,
                                 .is_causal = true,
                                 .dropout = config_.attention_dropout,
                                 .dtype = options_.compute_dtype};
}

bool Gpt::is_bias_or_norm(const std::string& name) const {
  return name.ends_with(".bias") || name.find(".ln_") != std::string::npos || name.ends_with("norm.weight");
}

NamedTensors Gpt::hf_views(const std::vector<at::Tensor>& per_parameter) const {
  NamedTensors views;
  const auto split = [&](const std::string& name, std::string_view part,
                         const std::vector<const char*>& names, const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < names.size(); ++i) {
      views.emplace_back(std::string(name).replace(name.find(part), part.size(), names[i]), tensors[i]);
    }
  };
  size_t i = 0;
  for (const auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    const at::Tensor& tensor = per_parameter.at(i++);
    if (is_vocabulary(name)) {
      views.emplace_back(name, tensor.narrow(0, 0, config_.vocab_size));
    } else if (name.find("qkv_proj") != std::string::npos) {
      const int64_t queries = config_.heads * config_.head_dim, keys = config_.kv_heads * config_.head_dim;
      split(name, "qkv_proj", {"q_proj", "k_proj", "v_proj"}, tensor.split_with_sizes({queries, keys, keys}));
    } else if (name.find("gate_up_proj") != std::string::npos) {
      split(name, "gate_up_proj", {"gate_proj", "up_proj"}, tensor.chunk(2));
    } else {
      // GPT-2's linear layers are transformers' Conv1D: [C_in, C_out].
      const bool is_conv = name.find(".c_") != std::string::npos && tensor.dim() == 2;
      views.emplace_back(name, is_conv ? tensor.t() : tensor);
    }
  }
  return views;
}

void Gpt::initialize(const std::string& hf_name, const at::Tensor& weight, at::Generator& generator) const {
  if (hf_name.ends_with(".bias")) {
    weight.zero_();
  } else if (is_bias_or_norm(hf_name)) {
    weight.fill_(1);
  } else {
    // GPT-2 scales what is added to the residual by the number of additions (§2.3).
    const double factor =
        hf_name.ends_with("c_proj.weight") ? 1 / std::sqrt(2.0 * static_cast<double>(config_.layers)) : 1;
    weight.normal_(0, factor * config_.initializer_range, generator);
  }
}

std::vector<std::string> Gpt::aliases(const std::string& hf_name) const {
  const std::string_view trunk = config_.is_llama() ? "model." : "transformer.";
  std::vector<std::string> names{hf_name};
  if (hf_name.starts_with(trunk)) names.push_back(hf_name.substr(trunk.size()));
  if (config_.tie_embeddings && is_vocabulary(hf_name)) names.emplace_back("lm_head.weight");
  return names;
}

bool Gpt::is_ignored(const std::string& file_name) const {
  return file_name.ends_with(".attn.bias") || file_name.ends_with(".attn.masked_bias") ||
         file_name.ends_with("rotary_emb.inv_freq") ||
         (config_.tie_embeddings && file_name == "lm_head.weight");
}

void Gpt::save_pretrained(const std::filesystem::path& directory) const {
  NamedTensors weights = hf_views(parameters());
  const bool add_biases = !config_.is_llama() && !config_.attention_bias;
  for (size_t i = 0, n = weights.size(); add_biases && i < n; ++i) {
    const auto [name, weight] = weights[i];
    if (is_vocabulary(name) || name.ends_with("wpe.weight")) continue;
    weights.emplace_back(std::string(name).replace(name.rfind("weight"), std::string::npos, "bias"),
                         at::zeros({weight.sizes().back()}));
  }
  save_hf_directory(directory, config_.to_hf_json(), options_.tokenizer_files, weights);
}

}  // namespace trainer::model
