#include "job/bert_config.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "job/faults.h"

// C channels (hidden size), I intermediate size, L layers.

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Far beyond use; they keep products of sizes, in bytes, within 64 bits.
constexpr int64_t kMostLayers = 10'000, kMostChannels = 1'000'000, kMostRows = 100'000'000;

// Reads keys of config.json and collects every fault.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void integer(const char* key, int64_t& value, int64_t min, int64_t max) {
    if (!present(key)) return;
    const Json& got = json_[key];
    if (got.is_number_integer() && got >= min && got <= max) {
      value = got.get<int64_t>();
    } else {
      fault(key, fmt::format("an integer from {} to {}", min, max));
    }
  }
  // In [0, below).
  void number(const char* key, double& value, double below) {
    if (!present(key)) return;
    const Json& got = json_[key];
    if (got.is_number() && got >= 0.0 && got < below) {
      value = got.get<double>();
    } else {
      fault(key, fmt::format("a number in [0, {})", below));
    }
  }
  // A key that must have the one value that is supported, when it is there.
  void only(const char* key, const Json& supported) {
    if (present(key) && json_[key] != supported) fault(key, supported.dump() + " (others are not supported)");
  }
  void activation(Activation& value) {
    if (!present("hidden_act")) return;
    const Json& got = json_["hidden_act"];
    if (got == "gelu") {
      value = Activation::kGelu;
    } else if (got == "gelu_new" || got == "gelu_pytorch_tanh" || got == "gelu_fast") {
      value = Activation::kGeluTanh;
    } else if (got == "relu") {
      value = Activation::kRelu;
    } else {
      fault("hidden_act", "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu");
    }
  }
  bool present(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  void fault(const char* key, const std::string& expected) {
    const std::string got = json_.contains(key) ? json_[key].dump() : "nothing";
    faults_.push_back(fmt::format("{}: got {}; expected {}", key, got, expected));
  }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  const Json& json_;
  std::vector<std::string> faults_;
};

}  // namespace

BertConfig BertConfig::load(const std::filesystem::path& path) {
  BertConfig config;
  Json json;
  try {
    config.json = read_file(path);
    json = Json::parse(config.json);
  } catch (const DataError& error) {
    throw SpecError(error.what());
  } catch (const Json::exception& error) {
    fail<SpecError>("{}: not valid JSON: {}", path.string(), error.what());
  }
  if (!json.is_object()) fail<SpecError>("{}: is not a JSON object", path.string());

  Reader reader(json);
  reader.only("model_type", "bert");
  if (!reader.present("model_type")) reader.fault("model_type", "\"bert\"");
  reader.only("position_embedding_type", "absolute");
  reader.only("is_decoder", false);
  reader.only("add_cross_attention", false);
  reader.integer("vocab_size", config.vocab_size, 1, kMostRows);
  reader.integer("hidden_size", config.hidden_size, 1, kMostChannels);
  reader.integer("num_hidden_layers", config.num_hidden_layers, 1, kMostLayers);
  reader.integer("num_attention_heads", config.num_attention_heads, 1, kMostChannels);
  reader.integer("intermediate_size", config.intermediate_size, 1, kMostChannels);
  reader.activation(config.hidden_act);
  reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 1);
  reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 1);
  if (reader.present("classifier_dropout")) {
    reader.number("classifier_dropout", config.classifier_dropout.emplace(), 1);
  }
  reader.integer("max_position_embeddings", config.max_position_embeddings, 1, kMostRows);
  reader.integer("type_vocab_size", config.type_vocab_size, 1, kMostRows);
  reader.number("initializer_range", config.initializer_range, 1);
  reader.number("layer_norm_eps", config.layer_norm_eps, 1);
  if (json.contains("pad_token_id") && json["pad_token_id"].is_null()) config.pad_token_id = -1;
  reader.integer("pad_token_id", config.pad_token_id, 0, kMostRows);
  if (config.pad_token_id >= config.vocab_size) reader.fault("pad_token_id", "an id below vocab_size");
  if (config.hidden_size % config.num_attention_heads != 0) {
    reader.fault("hidden_size",
                 fmt::format("a multiple of num_attention_heads ({})", config.num_attention_heads));
  }
  if (!reader.faults().empty()) {
    std::string message;
    for (const std::string& fault : reader.faults())
      message += fmt::format("\n  {}: {}", path.string(), fault);
    fail<SpecError>("the model's config is not one that can be trained{}", message);
  }
  return config;
}

ParameterCount BertConfig::weights(int64_t num_labels) const {
  const int64_t c = hidden_size, i = intermediate_size;
  const int64_t embeddings = (vocab_size + max_position_embeddings + type_vocab_size) * c;
  const int64_t layer = 4 * c * c + 2 * c * i;  // q, k, v are one tensor
  return {embeddings + num_hidden_layers * layer + c * c + c * num_labels, 3 + 4 * num_hidden_layers + 2};
}

ParameterCount BertConfig::biases_and_norms(int64_t num_labels) const {
  const int64_t c = hidden_size, i = intermediate_size;
  const int64_t norm = 2 * c;
  const int64_t layer = 4 * c + i + c + 2 * norm;
  return {norm + num_hidden_layers * layer + c + num_labels, 2 + 8 * num_hidden_layers + 2};
}

double BertConfig::forward_flops(double sequences, double tokens, double pairs, int64_t num_labels) const {
  const auto c = static_cast<double>(hidden_size), i = static_cast<double>(intermediate_size);
  const auto layers = static_cast<double>(num_hidden_layers);
  const double attention =
      layers * (3 * tokens * c * c + 2 * pairs * c);  // q, k, v; q k^T, its product with v
  const double rest = (tokens * (layers - 1) + sequences) * (c * c + 2 * c * i);  // output projection and MLP
  const double head = sequences * c * (c + static_cast<double>(num_labels));
  return 2 * (attention + rest + head);
}

BertConfig load_bert_config(const Job& job, JobFaults& faults, int64_t tokenizer_vocab_size) {
  const auto& s = job.spec;
  const auto path = std::filesystem::path(s.model.pretrained) / "config.json";
  BertConfig config;
  try {
    config = BertConfig::load(path);
  } catch (const SpecError& error) {
    faults.add("model.pretrained", "{}", error.what());
    return config;
  }
  if (s.data.max_length > config.max_position_embeddings) {
    faults.add("data.max_length", "got {}; {} has max_position_embeddings {}", s.data.max_length,
               path.string(), config.max_position_embeddings);
  }
  if (!s.data.train.text_pair.empty() && config.type_vocab_size < 2) {
    faults.add("data.train.text_pair", "got {}; {} has type_vocab_size {}, a pair needs 2",
               spec::shown(s.data.train.text_pair), path.string(), config.type_vocab_size);
  }
  if (tokenizer_vocab_size > config.vocab_size) {
    faults.add("model.pretrained", "the tokenizer has {} tokens; {} has vocab_size {}", tokenizer_vocab_size,
               path.string(), config.vocab_size);
  }
  return config;
}

BertConfig load_bert_config(const Job& job, int64_t tokenizer_vocab_size) {
  JobFaults faults(job.spec.said);
  BertConfig config = load_bert_config(job, faults, tokenizer_vocab_size);
  faults.throw_if_any();
  return config;
}

}  // namespace trainer
