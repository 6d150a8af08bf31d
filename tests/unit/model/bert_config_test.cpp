#include "model/bert_config.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "model_fixture.h"

namespace trainer::model {
namespace {

using Catch::Matchers::Message;

BertConfig load(const std::string& json) {
  const TemporaryDirectory dir;
  std::ofstream(dir.path / "config.json") << json;
  return BertConfig::load(dir.path / "config.json");
}

void check_refused(const std::string& json, const std::vector<std::string>& faults) {
  const TemporaryDirectory dir;
  const std::string path = (dir.path / "config.json").string();
  std::ofstream(path) << json;
  std::string message = "the model's config is not one that can be trained";
  for (const std::string& fault : faults) message += "\n  " + path + ": " + fault;
  CHECK_THROWS_MATCHES(BertConfig::load(path), SpecError, Message(message));
}

}  // namespace

TEST_CASE("a config says sizes, activation and dropout; what it does not say is as in transformers") {
  const BertConfig plain = load(R"({"model_type": "bert"})");
  CHECK(plain.hidden_size == 768);
  CHECK(plain.layer_norm_eps == 1e-12);
  CHECK_FALSE(plain.classifier_dropout);
  CHECK(plain.pad_token_id == 0);
  const BertConfig config = load(
      R"({"model_type": "bert", "hidden_size": 12, "num_attention_heads": 3, "hidden_act": "gelu_new",
          "hidden_dropout_prob": 0.2, "classifier_dropout": null, "pad_token_id": null, "extra": [1]})");
  CHECK(config.hidden_size == 12);
  CHECK(config.hidden_act == Activation::kGeluTanh);
  CHECK(config.hidden_dropout_prob == 0.2);
  CHECK_FALSE(config.classifier_dropout);
  CHECK(config.pad_token_id == -1);
  CHECK(config.json.find("\"extra\": [1]") != std::string::npos);
  CHECK(load(R"({"model_type": "bert", "hidden_act": "relu", "classifier_dropout": 0})").classifier_dropout ==
        0);
}

TEST_CASE("all faults of a config are reported together") {
  check_refused(
      R"({"model_type": "gpt2", "hidden_act": "silu", "hidden_size": -1, "vocab_size": "x"})",
      {"model_type: got \"gpt2\"; expected \"bert\" (others are not supported)",
       "vocab_size: got \"x\"; expected an integer >= 1", "hidden_size: got -1; expected an integer >= 1",
       "hidden_act: got \"silu\"; expected gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu"});
  check_refused(
      R"({"position_embedding_type": "relative_key", "is_decoder": true, "add_cross_attention": true})",
      {"model_type: got nothing; expected \"bert\"",
       "position_embedding_type: got \"relative_key\"; expected \"absolute\" (others are not supported)",
       "is_decoder: got true; expected false (others are not supported)",
       "add_cross_attention: got true; expected false (others are not supported)"});
  check_refused(
      R"({"model_type": "bert", "hidden_size": 10, "num_attention_heads": 3, "hidden_dropout_prob": 1,
                    "vocab_size": 5, "pad_token_id": 5})",
      {"hidden_dropout_prob: got 1; expected a number in [0, 1)",
       "pad_token_id: got 5; expected an id below vocab_size",
       "hidden_size: got 10; expected a multiple of num_attention_heads (3)"});
}

TEST_CASE("a config that is not JSON is refused") {
  const TemporaryDirectory dir;
  const std::string path = (dir.path / "config.json").string();
  std::ofstream(path) << "{";
  CHECK_THROWS_MATCHES(BertConfig::load(path), SpecError, Message(path + ": is not a JSON object"));
}

}  // namespace trainer::model
