#include "job/gpt_config.h"

#include "core/error.h"
#include "core/math.h"
#include "job/config_reader.h"
#include "job/faults.h"
#include "spec/enums.h"

// C channels (hidden size), I intermediate size, H heads, D channels a head, V rows of the vocabulary.

namespace trainer {
namespace {

using Json = ConfigReader::Json;
using spec::Activation;
using spec::GptPreset;
using spec::Positions;

void read_ids(ConfigReader& reader, GptConfig& config) {
  const auto id = [](const Json& got) { return got.is_number_integer() && got >= 0 && got < kMostRows; };
  if (reader.present("bos_token_id"))
    reader.integer("bos_token_id", config.bos_token_id.emplace(), 0, kMostRows);
  if (!reader.present("eos_token_id")) return;
  const Json& got = reader["eos_token_id"];
  const Json list = got.is_array() ? got : Json::array({got});
  for (const Json& one : list) {
    if (!id(one)) return reader.fault("eos_token_id", "an id, or a list of them");
    config.eos_token_ids.push_back(one);
  }
}

void read_gpt2(ConfigReader& reader, GptConfig& c) {
  // transformers takes these for its own; we would miss them.
  for (const auto& [alias, key] : {std::pair{"hidden_size", "n_embd"},
                                   {"max_position_embeddings", "n_positions"},
                                   {"num_attention_heads", "n_head"},
                                   {"num_hidden_layers", "n_layer"}}) {
    if (reader.present(alias) && !reader.present(key)) reader.fault(alias, fmt::format("it as {}", key));
  }
  reader.integer("n_embd", c.hidden_size, 1, kMostChannels);
  reader.integer("n_layer", c.layers, 1, kMostLayers);
  reader.integer("n_head", c.heads, 1, kMostChannels);
  reader.integer("n_positions", c.max_positions, 1, kMostRows);
  c.intermediate_size = 4 * c.hidden_size;
  reader.integer("n_inner", c.intermediate_size, 1, kMostChannels);
  reader.activation("activation_function", c.activation);
  reader.number("layer_norm_epsilon", c.norm_eps, 1);
  reader.number("embd_pdrop", c.embedding_dropout, 1);
  reader.number("resid_pdrop", c.residual_dropout, 1);
  reader.number("attn_pdrop", c.attention_dropout, 1);
  reader.only("scale_attn_weights", true);
  reader.only("scale_attn_by_inverse_layer_idx", false);
  reader.only("reorder_and_upcast_attn", false);
  c.kv_heads = c.heads;
  if (c.hidden_size % c.heads != 0) reader.fault("n_embd", fmt::format("a multiple of n_head ({})", c.heads));
  c.head_dim = c.hidden_size / c.heads;
}

// transformers 4 has rope_theta and rope_scaling, 5 both in rope_parameters.
void read_rope(ConfigReader& reader, GptConfig& c) {
  reader.positive("rope_theta", c.rope_theta);
  const char* const key = reader.present("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!reader.present(key)) return;
  const Json& rope = reader[key];
  bool good = rope.is_object();
  const auto number = [&](const char* name, double& value, bool required) {
    if (rope.contains(name) && !rope[name].is_null()) {
      good = good && rope[name].is_number() && rope[name] > 0.0;
      if (good) value = rope[name].get<double>();
    } else if (required) {
      good = false;
    }
  };
  RopeScaling& scaling = c.rope_scaling;
  if (good) {
    number("rope_theta", c.rope_theta, false);
    double rotated = 1;
    number("partial_rotary_factor", rotated, false);
    const Json type = rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", Json("default"));
    good = good && rotated == 1 && (type == "default" || type == "linear" || type == "llama3");
    if (type != "default") number("factor", scaling.factor, true);
    if (type == "linear") scaling.type = RopeScaling::Type::kLinear;
    if (type == "llama3") {
      scaling.type = RopeScaling::Type::kLlama3;
      number("low_freq_factor", scaling.low_freq_factor, true);
      number("high_freq_factor", scaling.high_freq_factor, true);
      number("original_max_position_embeddings", scaling.original_max_positions, true);
      good = good && scaling.low_freq_factor < scaling.high_freq_factor;
    }
  }
  if (!good) {
    reader.fault(
        key,
        "rope_type default, linear with a factor, or llama3 with factor, low_freq_factor < high_freq_factor "
        "and original_max_position_embeddings (others are not supported)");
  }
}

void read_llama(ConfigReader& reader, GptConfig& c) {
  c = GptConfig::preset(GptPreset::kLlama7b);
  c.max_positions = 2048;  // transformers' LlamaConfig
  c.norm_eps = 1e-6;
  reader.integer("hidden_size", c.hidden_size, 1, kMostChannels);
  reader.integer("intermediate_size", c.intermediate_size, 1, kMostChannels);
  reader.integer("num_hidden_layers", c.layers, 1, kMostLayers);
  reader.integer("num_attention_heads", c.heads, 1, kMostChannels);
  c.kv_heads = c.heads;
  reader.integer("num_key_value_heads", c.kv_heads, 1, kMostChannels);
  reader.integer("max_position_embeddings", c.max_positions, 1, kMostRows);
  reader.number("rms_norm_eps", c.norm_eps, 1);
  reader.number("attention_dropout", c.attention_dropout, 1);
  reader.boolean("attention_bias", c.attention_bias);
  reader.boolean("mlp_bias", c.mlp_bias);
  reader.only("hidden_act", "silu");
  reader.only("partial_rotary_factor", 1.0);
  read_rope(reader, c);
  if (c.hidden_size % c.heads != 0) {
    reader.fault("hidden_size", fmt::format("a multiple of num_attention_heads ({})", c.heads));
  }
  if (c.heads % c.kv_heads != 0) {
    reader.fault("num_key_value_heads", fmt::format("a divisor of num_attention_heads ({})", c.heads));
  }
  c.head_dim = c.hidden_size / c.heads;
  reader.integer("head_dim", c.head_dim, 1, kMostChannels);
  if (c.head_dim % 2 != 0) reader.fault("head_dim", fmt::format("an even number, but it is {}", c.head_dim));
}

const char* hf_activation(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_new";
    case Activation::kRelu:
      return "relu";
    case Activation::kSwiglu:
      return "silu";
  }
  return "";
}

Json new_json(const GptConfig& c) {
  const auto& eos = c.eos_token_ids;
  Json out = {{"architectures", nullptr},  // first, as in transformers
              {"model_type", c.is_llama() ? "llama" : "gpt2"},
              {"vocab_size", c.vocab_size},
              {"tie_word_embeddings", c.tie_embeddings},
              {"initializer_range", c.initializer_range},
              {"bos_token_id", c.bos_token_id ? Json(*c.bos_token_id) : Json()},
              {"eos_token_id", eos.empty()       ? Json()
                               : eos.size() == 1 ? Json(eos[0])
                                                 : Json(eos)}};
  if (c.is_llama()) {
    out.update(Json{{"hidden_size", c.hidden_size},
                    {"intermediate_size", c.intermediate_size},
                    {"num_hidden_layers", c.layers},
                    {"num_attention_heads", c.heads},
                    {"num_key_value_heads", c.kv_heads},
                    {"head_dim", c.head_dim},
                    {"hidden_act", hf_activation(c.activation)},
                    {"max_position_embeddings", c.max_positions},
                    {"rms_norm_eps", c.norm_eps},
                    {"rope_theta", c.rope_theta},
                    {"rope_scaling", nullptr},
                    {"attention_bias", c.attention_bias},
                    {"mlp_bias", c.mlp_bias}});
  } else {
    out.update(Json{{"n_embd", c.hidden_size},
                    {"n_inner", c.intermediate_size},
                    {"n_layer", c.layers},
                    {"n_head", c.heads},
                    {"n_positions", c.max_positions},
                    {"activation_function", hf_activation(c.activation)},
                    {"layer_norm_epsilon", c.norm_eps}});
  }
  return out;
}

// What of a new model's keys neither of transformers' two classes has.
void check_form(const GptConfig& c, JobFaults& faults) {
  constexpr const char* kForms =
      "transformers has learned positions with norm layer, kv_heads as heads, and activation gelu_tanh, gelu "
      "or relu "
      "(gpt2), or positions rope with norm rms and activation swiglu (llama)";
  const auto check = [&](bool fits, const char* key, const std::string& got, std::string_view expected) {
    if (!fits) {
      faults.add(key, "got {} with positions {}; expected {}: {}", got, to_string(c.positions), expected,
                 kForms);
    }
  };
  const bool rope = c.is_llama();
  check((c.norm == spec::Norm::kRms) == rope, "model.gpt.norm", std::string(to_string(c.norm)),
        rope ? "rms" : "layer");
  check(c.is_gated() == rope, "model.gpt.activation", std::string(to_string(c.activation)),
        rope ? "swiglu" : "gelu_tanh, gelu or relu");
  check(rope || c.kv_heads == c.heads, "model.gpt.kv_heads", std::to_string(c.kv_heads),
        std::to_string(c.heads));
}

GptConfig new_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size) {
  const spec::Gpt& g = job.spec.model.gpt;
  GptConfig c = GptConfig::preset(g.preset);
  if (g.preset == GptPreset::kNone) c.max_positions = job.spec.data.max_length;
  if (tokenizer_vocab_size > 0) c.vocab_size = tokenizer_vocab_size;
  const auto set = [](auto& value, const auto& said) {
    if (said) value = *said;
  };
  set(c.layers, g.layers);
  set(c.hidden_size, g.hidden_size);
  set(c.heads, g.heads);
  if (g.heads) c.kv_heads = c.heads;
  set(c.kv_heads, g.kv_heads);
  if (g.hidden_size) c.intermediate_size = 4 * c.hidden_size;
  set(c.intermediate_size, g.intermediate_size);
  set(c.max_positions, g.max_positions);
  set(c.vocab_size, g.vocab_size);
  set(c.norm, g.norm);
  set(c.norm_eps, g.norm_eps);
  set(c.activation, g.activation);
  set(c.positions, g.positions);
  set(c.rope_theta, g.rope_theta);
  set(c.attention_bias, g.bias);
  set(c.mlp_bias, g.bias);
  set(c.tie_embeddings, g.tie_embeddings);
  set(c.initializer_range, g.initializer_range);
  if (c.hidden_size % c.heads != 0) {
    faults.add("model.gpt.heads", "got {}; expected a divisor of hidden_size ({})", c.heads, c.hidden_size);
  }
  if (c.heads % c.kv_heads != 0) {
    faults.add("model.gpt.kv_heads", "got {}; expected a divisor of heads ({})", c.kv_heads, c.heads);
  }
  c.head_dim = c.hidden_size / c.heads;
  if (c.is_llama() && c.head_dim % 2 != 0) {
    faults.add("model.gpt.heads",
               "got {}, {} channels each; expected an even number of them with positions rope", c.heads,
               c.head_dim);
  }
  check_form(c, faults);
  if (tokenizer_vocab_size > c.vocab_size) {
    faults.add("model.gpt.vocab_size", "got {}; the tokenizer has {} tokens", c.vocab_size,
               tokenizer_vocab_size);
  }
  if (job.spec.data.max_length > c.max_positions) {
    faults.add("data.max_length", "got {}; the model has max_positions {}", job.spec.data.max_length,
               c.max_positions);
  }
  return c;
}

}  // namespace

GptConfig GptConfig::load(const std::filesystem::path& path, const char* expected) {
  ConfigReader reader(path);
  GptConfig config;
  const bool is_llama = reader.present("model_type") && reader["model_type"] == "llama";
  if (is_llama) {
    read_llama(reader, config);
  } else if (reader.present("model_type") && reader["model_type"] == "gpt2") {
    read_gpt2(reader, config);
  } else {
    reader.fault("model_type", "\"gpt2\" or \"llama\"");
  }
  reader.integer("vocab_size", config.vocab_size, 1, kMostRows);
  reader.boolean("tie_word_embeddings", config.tie_embeddings);
  reader.number("initializer_range", config.initializer_range, 1);
  reader.only("add_cross_attention", false);
  if (reader.present("quantization_config")) reader.fault("quantization_config", "none: weights in full");
  read_ids(reader, config);
  reader.throw_if_any(expected);
  config.json = reader.text();
  return config;
}

GptConfig GptConfig::preset(GptPreset preset) {
  GptConfig c;
  // What is trained on much text needs none.
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0;
  const auto shape = [&](int64_t layers, int64_t heads, int64_t channels) {
    c.layers = layers, c.heads = c.kv_heads = heads;
    c.hidden_size = channels, c.intermediate_size = 4 * channels, c.head_dim = channels / heads;
  };
  const auto llama = [&] {
    c.norm = spec::Norm::kRms, c.activation = Activation::kSwiglu, c.positions = Positions::kRope;
    c.attention_bias = c.mlp_bias = false;
  };
  switch (preset) {
    case GptPreset::kNone:
    case GptPreset::kGpt2:
      break;
    case GptPreset::kGpt2Medium:
      shape(24, 16, 1024);
      break;
    case GptPreset::kGpt2Large:
      shape(36, 20, 1280);
      break;
    case GptPreset::kGpt2Xl:
      shape(48, 25, 1600);
      break;
    case GptPreset::kLlama1b:  // Llama 3.2, at the context of its first training
      llama();
      shape(16, 32, 2048);
      c.kv_heads = 8, c.max_positions = 8192, c.vocab_size = 128256, c.rope_theta = 500000;
      break;
    case GptPreset::kLlama7b:  // Llama 2
      llama();
      shape(32, 32, 4096);
      c.intermediate_size = 11008, c.max_positions = 4096, c.vocab_size = 32000, c.tie_embeddings = false;
      break;
  }
  return c;
}

int64_t GptConfig::vocab_rows() const {
  return ceil_div(vocab_size, pad_vocab_to) * pad_vocab_to;
}

std::string GptConfig::to_hf_json() const {
  Json out = json.empty() ? new_json(*this) : Json::parse(json);
  for (const char* stale : {"_name_or_path", "dtype"}) out.erase(stale);
  out["architectures"] = {is_llama() ? "LlamaForCausalLM" : "GPT2LMHeadModel"};
  out["torch_dtype"] = "float32";
  if (is_llama()) {
    out["attention_dropout"] = attention_dropout;
  } else {
    out["embd_pdrop"] = embedding_dropout;
    out["resid_pdrop"] = residual_dropout;
    out["attn_pdrop"] = attention_dropout;
  }
  return out.dump(2) + "\n";
}

GptConfig load_gpt_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size) {
  const spec::Model& model = job.spec.model;
  GptConfig config;
  if (model.pretrained.empty()) {
    config = new_config(job, faults, tokenizer_vocab_size);
  } else {
    const auto path = std::filesystem::path(model.pretrained) / "config.json";
    try {
      config = GptConfig::load(path);
    } catch (const SpecError& error) {
      faults.add("model.pretrained", "{}", error.what());
      return config;
    }
    if (job.spec.data.max_length > config.max_positions) {
      faults.add("data.max_length", "got {}; {} has {} positions", job.spec.data.max_length, path.string(),
                 config.max_positions);
    }
    if (tokenizer_vocab_size > config.vocab_size) {
      faults.add("model.pretrained", "the tokenizer has {} tokens; {} has vocab_size {}",
                 tokenizer_vocab_size, path.string(), config.vocab_size);
    }
  }
  config.pad_vocab_to = model.gpt.pad_vocab_to;
  if (model.hidden_dropout) config.embedding_dropout = config.residual_dropout = *model.hidden_dropout;
  config.attention_dropout = model.attention_dropout.value_or(config.attention_dropout);
  return config;
}

GptConfig load_gpt_config(const Job& job, int64_t tokenizer_vocab_size) {
  JobFaults faults(job.spec.said);
  GptConfig config = load_gpt_config(job, faults, tokenizer_vocab_size);
  faults.throw_if_any();
  return config;
}

}  // namespace trainer
