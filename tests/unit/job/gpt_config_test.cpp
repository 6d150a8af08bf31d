#include "job/gpt_config.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "spec/load.h"
#include "temporary_directory.h"

namespace trainer {
namespace {

using Catch::Matchers::Message;
using spec::Activation;
using spec::GptPreset;

GptConfig load(const std::string& json) {
  const TemporaryDirectory dir;
  return GptConfig::load(dir.write("config.json", json));
}

void check_refused(const std::string& json, const std::vector<std::string>& faults) {
  const TemporaryDirectory dir;
  const std::string path = dir.write("config.json", json);
  std::string message = "the model's config is not one that can be trained";
  for (const std::string& fault : faults) message += "\n  " + path + ": " + fault;
  CHECK_THROWS_MATCHES(GptConfig::load(path), SpecError, Message(message));
}

// The config of a job with these keys of model.gpt.
GptConfig new_config(const std::string& gpt, int64_t tokenizer_vocab_size = 0, const std::string& more = "") {
  const auto spec = spec::parse("model: {type: gpt, gpt: {" + gpt + "}}\ndata: {train: {path: a}}\n" + more,
                                "job.yaml", {});
  return load_gpt_config(resolve(spec, World(), 0), tokenizer_vocab_size);
}

void check_new_refused(const std::string& gpt, const std::string& faults, int64_t tokenizer_vocab_size = 0) {
  INFO(gpt);
  CHECK_THROWS_MATCHES(new_config(gpt, tokenizer_vocab_size), SpecError, Message(faults));
}

}  // namespace

TEST_CASE("a GPT-2's config says its shape; what it does not say is as in transformers") {
  const GptConfig plain = load(R"({"model_type": "gpt2"})");
  CHECK_FALSE(plain.is_llama());
  CHECK(plain.head_dim == 64);
  CHECK(plain.intermediate_size == 3072);
  CHECK(plain.activation == Activation::kGeluTanh);
  CHECK(plain.tie_embeddings);
  CHECK(plain.attention_dropout == 0.1);
  const GptConfig config = load(
      R"({"model_type": "gpt2", "n_embd": 12, "n_head": 3, "n_layer": 5, "n_positions": 7, "vocab_size": 11,
          "activation_function": "relu", "n_inner": null, "attn_pdrop": 0.2, "tie_word_embeddings": false,
          "layer_norm_epsilon": 1e-3, "scale_attn_weights": true, "bos_token_id": 3, "eos_token_id": [1, 2],
          "extra": [1]})");
  CHECK(config.heads == 3);
  CHECK(config.kv_heads == 3);
  CHECK(config.head_dim == 4);
  CHECK(config.intermediate_size == 48);
  CHECK(config.activation == Activation::kRelu);
  CHECK(config.norm_eps == 1e-3);
  CHECK_FALSE(config.tie_embeddings);
  CHECK(config.bos_token_id == 3);
  CHECK(config.eos_token_ids == std::vector<int64_t>{1, 2});
  CHECK(nlohmann::json::parse(config.to_hf_json())["extra"] == nlohmann::json{1});
}

TEST_CASE("a Llama's config says its shape and rotations, as transformers 4 and 5 write them") {
  const GptConfig plain = load(R"({"model_type": "llama"})");
  CHECK(plain.is_llama());
  CHECK(plain.is_gated());
  CHECK(plain.norm == spec::Norm::kRms);
  CHECK(plain.norm_eps == 1e-6);
  CHECK(plain.max_positions == 2048);
  CHECK_FALSE(plain.tie_embeddings);
  CHECK_FALSE(plain.attention_bias);
  CHECK(plain.rope_theta == 10000);
  const std::string scaling =
      R"("factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 4096)";
  for (const std::string& rope :
       {R"("rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", )" + scaling + "}",
        R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", )" + scaling + "}"}) {
    const GptConfig config =
        load(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
                 "head_dim": 16, "attention_bias": true, "mlp_bias": true, "pretraining_tp": 1, )" +
             rope + "}");
    CHECK(config.kv_heads == 2);
    CHECK(config.head_dim == 16);
    CHECK(config.qkv_size() == 12 * 16);
    CHECK(config.attention_bias);
    CHECK(config.mlp_bias);
    CHECK(config.rope_theta == 5e5);
    CHECK(config.rope_scaling.type == RopeScaling::Type::kLlama3);
    CHECK(config.rope_scaling.factor == 8);
    CHECK(config.rope_scaling.original_max_positions == 4096);
  }
  CHECK(
      load(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2}})").rope_scaling.type ==
      RopeScaling::Type::kLinear);
}

TEST_CASE("all that would change a GPT's result and is not supported is refused") {
  check_refused("{}", {"model_type: got nothing; expected \"gpt2\" or \"llama\""});
  check_refused(R"({"model_type": "mistral"})",
                {"model_type: got \"mistral\"; expected \"gpt2\" or \"llama\""});
  check_refused(
      R"({"model_type": "gpt2", "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true,
          "reorder_and_upcast_attn": true, "add_cross_attention": true, "activation_function": "silu",
          "num_hidden_layers": 3, "eos_token_id": "a", "n_embd": 10, "n_head": 3, "quantization_config": {},
          "tie_word_embeddings": 1})",
      {"num_hidden_layers: got 3; expected it as n_layer",
       "activation_function: got \"silu\"; expected gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu",
       "scale_attn_weights: got false; expected true (others are not supported)",
       "scale_attn_by_inverse_layer_idx: got true; expected false (others are not supported)",
       "reorder_and_upcast_attn: got true; expected false (others are not supported)",
       "n_embd: got 10; expected a multiple of n_head (3)",
       "tie_word_embeddings: got 1; expected true or false",
       "add_cross_attention: got true; expected false (others are not supported)",
       "quantization_config: got {}; expected none: weights in full",
       "eos_token_id: got \"a\"; expected an id, or a list of them"});
  const std::string rope =
      "; expected rope_type default, linear with a factor, or llama3 with factor, low_freq_factor < "
      "high_freq_factor and original_max_position_embeddings (others are not supported)";
  check_refused(
      R"({"model_type": "llama", "hidden_act": "gelu", "partial_rotary_factor": 0.5, "rope_theta": 0,
          "rope_scaling": {"rope_type": "yarn", "factor": 2}, "num_key_value_heads": 3, "head_dim": 5})",
      {"hidden_act: got \"gelu\"; expected \"silu\" (others are not supported)",
       "partial_rotary_factor: got 0.5; expected 1.0 (others are not supported)",
       "rope_theta: got 0; expected a number > 0",
       R"(rope_scaling: got {"rope_type":"yarn","factor":2})" + rope,
       "num_key_value_heads: got 3; expected a divisor of num_attention_heads (32)",
       "head_dim: got 5; expected an even number, but it is 5"});
  for (const std::string bad : {"1", R"({"rope_type":"linear"})", R"({"rope_type":"llama3","factor":2})",
                                R"({"rope_type":"default","partial_rotary_factor":0.5})"}) {
    check_refused(R"({"model_type": "llama", "rope_parameters": )" + bad + "}",
                  {"rope_parameters: got " + bad + rope});
  }
  check_refused(R"({"model_type": "llama", "hidden_size": 10})",
                {"hidden_size: got 10; expected a multiple of num_attention_heads (32)"});
}

TEST_CASE("the presets have as many parameters as the models they are named after") {
  const auto count = [](GptPreset preset) {
    const GptConfig config = GptConfig::preset(preset);
    return config.weights().count + config.biases_and_norms().count;
  };
  CHECK(count(GptPreset::kGpt2) == 124'439'808);
  CHECK(count(GptPreset::kGpt2Medium) == 354'823'168);
  CHECK(count(GptPreset::kGpt2Large) == 774'030'080);
  CHECK(count(GptPreset::kGpt2Xl) == 1'557'611'200);
  CHECK(count(GptPreset::kLlama1b) == 1'235'814'400);
  CHECK(count(GptPreset::kLlama7b) == 6'738'415'616);
}

TEST_CASE("a new model's shape: the job's keys over the preset's, the vocabulary and length of its data") {
  const GptConfig small = new_config("layers: 3, heads: 4, hidden_size: 64", 70);
  CHECK(small.layers == 3);
  CHECK(small.kv_heads == 4);
  CHECK(small.head_dim == 16);
  CHECK(small.intermediate_size == 256);
  CHECK(small.max_positions == 128);  // data.max_length
  CHECK(small.vocab_size == 70);
  CHECK(small.vocab_rows() == 128);
  CHECK(small.attention_bias);
  const GptConfig llama = new_config("preset: llama-1b, layers: 2, pad_vocab_to: 1", 300);
  CHECK(llama.kv_heads == 8);
  CHECK(llama.intermediate_size == 8192);
  CHECK(llama.max_positions == 8192);
  CHECK(llama.vocab_size == 300);
  CHECK(llama.vocab_rows() == 300);
  CHECK(new_config("preset: gpt2, vocab_size: 400", 300).vocab_size == 400);
  CHECK(new_config("preset: gpt2-xl").vocab_size == 50257);
  CHECK_FALSE(new_config("bias: false").has_norm_bias());
  CHECK(new_config("preset: gpt2").initializer_range == 0.02);
  CHECK(new_config("initializer_range: 0.05").initializer_range == 0.05);
}

TEST_CASE("a shape that cannot be is refused, all faults together, at their places") {
  const std::string forms =
      ": transformers has learned positions with norm layer, kv_heads as heads, and activation gelu_tanh, "
      "gelu or relu (gpt2), or positions rope with norm rms and activation swiglu (llama)\n";
  check_new_refused("heads: 5, kv_heads: 2, hidden_size: 64, max_positions: 100, vocab_size: 9",
                    "job.yaml: data.max_length: got 128; the model has max_positions 100\n"
                    "job.yaml:1:33: model.gpt.heads: got 5; expected a divisor of hidden_size (64)\n"
                    "job.yaml:1:46: model.gpt.kv_heads: got 2; expected a divisor of heads (5)\n"
                    "job.yaml:1:46: model.gpt.kv_heads: got 2 with positions learned; expected 5" +
                        forms +
                        "job.yaml:1:98: model.gpt.vocab_size: got 9; the tokenizer has 10 tokens\n"
                        "5 faults in job.yaml",
                    10);
  check_new_refused("norm: rms, activation: swiglu",
                    "job.yaml:1:32: model.gpt.norm: got rms with positions learned; expected layer" + forms +
                        "job.yaml:1:49: model.gpt.activation: got swiglu with positions learned; expected "
                        "gelu_tanh, gelu or relu" +
                        forms + "2 faults in job.yaml");
  check_new_refused(
      "positions: rope, heads: 256",
      "job.yaml: model.gpt.norm: got layer with positions rope; expected rms" + forms +
          "job.yaml: model.gpt.activation: got gelu_tanh with positions rope; expected swiglu" + forms +
          "job.yaml:1:50: model.gpt.heads: got 256, 3 channels each; expected an even number of "
          "them with positions rope\n3 faults in job.yaml");
}

TEST_CASE("what a job asks of a pretrained GPT and it lacks is refused, all together") {
  const TemporaryDirectory dir;
  const std::string path =
      dir.write("config.json", R"({"model_type": "llama", "vocab_size": 9, "max_position_embeddings": 31})");
  Job job;
  job.spec.model.type = spec::ModelType::kGpt;
  job.spec.model.pretrained = dir.path.string();
  job.spec.model.hidden_dropout = 0.5;
  job.spec.data.max_length = 31;
  const GptConfig config = load_gpt_config(job, 9);
  CHECK(config.vocab_rows() == 64);
  CHECK(config.residual_dropout == 0.5);
  CHECK(config.embedding_dropout == 0.5);
  CHECK(config.attention_dropout == 0);
  job.spec.data.max_length = 32;
  CHECK_THROWS_MATCHES(load_gpt_config(job, 10), SpecError,
                       Message("data.max_length: got 32; " + path + " has 31 positions\n" +
                               "model.pretrained: the tokenizer has 10 tokens; " + path +
                               " has vocab_size 9\n2 faults in the job spec"));
  job.spec.model.pretrained = "/nowhere";
  CHECK_THROWS_MATCHES(load_gpt_config(job), SpecError,
                       Message("model.pretrained: /nowhere/config.json: cannot open: No such file or "
                               "directory\n1 fault in the job spec"));
}

}  // namespace trainer
