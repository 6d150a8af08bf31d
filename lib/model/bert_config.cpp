#include "model/bert_config.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace trainer::model {
namespace {

using Json = nlohmann::ordered_json;

// Reads keys of config.json and collects every fault.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void integer(const char* key, int64_t& value, int64_t min) {
    if (!present(key)) return;
    const Json& got = json_[key];
    if (got.is_number_integer() && got >= min && got <= std::numeric_limits<int32_t>::max()) {
      value = got.get<int64_t>();
    } else {
      fault(key, fmt::format("an integer >= {}", min));
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
  config.json = read_file(path);
  const Json json = Json::parse(config.json, nullptr, false);
  if (!json.is_object()) fail<SpecError>("{}: is not a JSON object", path.string());

  Reader reader(json);
  reader.only("model_type", "bert");
  if (!reader.present("model_type")) reader.fault("model_type", "\"bert\"");
  reader.only("position_embedding_type", "absolute");
  reader.only("is_decoder", false);
  reader.only("add_cross_attention", false);
  reader.integer("vocab_size", config.vocab_size, 1);
  reader.integer("hidden_size", config.hidden_size, 1);
  reader.integer("num_hidden_layers", config.num_hidden_layers, 1);
  reader.integer("num_attention_heads", config.num_attention_heads, 1);
  reader.integer("intermediate_size", config.intermediate_size, 1);
  reader.activation(config.hidden_act);
  reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 1);
  reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 1);
  if (reader.present("classifier_dropout")) {
    reader.number("classifier_dropout", config.classifier_dropout.emplace(), 1);
  }
  reader.integer("max_position_embeddings", config.max_position_embeddings, 1);
  reader.integer("type_vocab_size", config.type_vocab_size, 1);
  reader.number("initializer_range", config.initializer_range, 1);
  reader.number("layer_norm_eps", config.layer_norm_eps, 1);
  if (json.contains("pad_token_id") && json["pad_token_id"].is_null()) config.pad_token_id = -1;
  reader.integer("pad_token_id", config.pad_token_id, 0);
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

}  // namespace trainer::model
