#include "job/bert_config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Message;

// A config.json of its own, removed at the end.
struct ConfigFile {
  fs::path directory = fs::temp_directory_path() / ("trainer_bert_config_test_" + std::to_string(::getpid()));
  fs::path path = directory / "config.json";
  explicit ConfigFile(const std::string& json) {
    fs::create_directories(directory);
    std::ofstream(path) << json;
  }
  ~ConfigFile() { fs::remove_all(directory); }
};

BertConfig load(const std::string& json) {
  const ConfigFile file(json);
  return BertConfig::load(file.path);
}

std::string refusal(const std::string& json) {
  try {
    load(json);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "no fault";
}

void check_refused(const std::string& json, const std::vector<std::string>& faults) {
  const std::string path = ConfigFile("").path.string();
  std::string message = "the model's config is not one that can be trained";
  for (const std::string& fault : faults) message += "\n  " + path + ": " + fault;
  CHECK(refusal(json) == message);
}

Job job_of(const ConfigFile& file) {
  Job job;
  job.spec.model.pretrained = file.directory.string();
  return job;
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
  check_refused(R"({"model_type": "gpt2", "hidden_act": "silu", "hidden_size": -1, "vocab_size": "x"})",
                {"model_type: got \"gpt2\"; expected \"bert\" (others are not supported)",
                 "vocab_size: got \"x\"; expected an integer from 1 to 100000000",
                 "hidden_size: got -1; expected an integer from 1 to 1000000",
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
  const std::string path = ConfigFile("").path.string();
  CHECK(refusal("[]") == path + ": is not a JSON object");
  CHECK(refusal("{").rfind(path + ": not valid JSON: ", 0) == 0);
  CHECK_THROWS_MATCHES(BertConfig::load("/nowhere/config.json"), SpecError,
                       Message("/nowhere/config.json: cannot open: No such file or directory"));
}

TEST_CASE("sizes are bounded, so that no product of them overflows") {
  check_refused(R"({"model_type": "bert", "num_hidden_layers": 10001, "vocab_size": 100000001})",
                {"vocab_size: got 100000001; expected an integer from 1 to 100000000",
                 "num_hidden_layers: got 10001; expected an integer from 1 to 10000"});
  const BertConfig largest = load(
      R"({"model_type": "bert", "num_hidden_layers": 10000, "hidden_size": 1000000, "num_attention_heads": 1,
          "intermediate_size": 1000000, "vocab_size": 100000000, "max_position_embeddings": 100000000})");
  CHECK(4 * largest.weights(1'000'000).count > 0);
  CHECK(largest.weights(1'000'000).count == Approx(1e4 * 6e12 + 200000002e6 + 2e12).epsilon(1e-12));
}

TEST_CASE("parameters and FLOPs of a BERT are those of transformers and torch's counter") {
  const auto rows = nlohmann::json::parse(read_file(TEST_DATA "/job/bert_sizes.json"));
  REQUIRE(rows.size() == 9);
  for (const auto& row : rows) {
    const BertConfig config = load(row["config"].dump());
    INFO(row.dump());
    const int64_t labels = row["num_labels"];
    const double batch = row["batch"], tokens = row["tokens"];
    CHECK(config.weights(labels).count + config.biases_and_norms(labels).count == row["parameters"]);
    CHECK(config.forward_flops(batch, batch * tokens, batch * tokens * tokens, labels) ==
          row["forward_flops"].get<double>());
  }
}

TEST_CASE("what a job asks of its model and the model lacks is refused, all together") {
  const ConfigFile file(
      R"({"model_type": "bert", "vocab_size": 9, "max_position_embeddings": 31, "type_vocab_size": 1})");
  Job job = job_of(file);
  job.spec.data.max_length = 31;
  CHECK(load_bert_config(job, 9).vocab_size == 9);
  job.spec.data.max_length = 32;
  job.spec.data.train.text_pair = "b";
  const std::string path = file.path.string();
  CHECK_THROWS_MATCHES(
      load_bert_config(job, 10), SpecError,
      Message("data.max_length: got 32; " + path + " has max_position_embeddings 31\n" +
              "data.train.text_pair: got \"b\"; " + path + " has type_vocab_size 1, a pair needs 2\n" +
              "model.pretrained: the tokenizer has 10 tokens; " + path +
              " has vocab_size 9\n3 faults in the job spec"));
  job.spec.model.pretrained = "/nowhere";
  CHECK_THROWS_MATCHES(load_bert_config(job), SpecError,
                       Message("model.pretrained: /nowhere/config.json: cannot open: No such file or "
                               "directory\n1 fault in the job spec"));
}

}  // namespace trainer
