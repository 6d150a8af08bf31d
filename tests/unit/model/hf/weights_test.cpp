#include "model/hf/weights.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../model_fixture.h"
#include "core/error.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Message;

NamedTensors weights(const BertClassifier& model) {
  return model.hf_views(model.parameters());
}

void check_equal(const BertClassifier& a, const BertClassifier& b) {
  const NamedTensors left = weights(a), right = weights(b);
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    INFO(left[i].first);
    CHECK(left[i].first == right[i].first);
    CHECK(at::equal(left[i].second, right[i].second));
  }
}

// A directory with the reference's config and `tensors`.
void write_directory(const fs::path& directory, const NamedTensors& tensors) {
  fs::copy_file(kReferenceBert / "config.json", directory / "config.json");
  write_safetensors(directory / "model.safetensors", tensors);
}

Job job_of(const fs::path& directory) {
  Job job = tiny_job();
  job.spec.model.pretrained = directory.string();
  return job;
}

}  // namespace

TEST_CASE("an encoder without prefix is loaded, and the new classifier reported") {
  const Loaded loaded = make_model(tiny_job());
  CHECK(loaded.report.newly_initialized == std::vector<std::string>{"classifier.weight", "classifier.bias"});
  CHECK(loaded.report.unused.empty());
}

TEST_CASE("a saved model is loaded exactly, with its config and tokenizer files") {
  const TemporaryDirectory dir;
  Job job = tiny_job();
  job.spec.model.hidden_dropout = 0.25;
  job.spec.data.label_names = {"no", "maybe", "yes"};
  const auto model = make_bert(job);
  model->save_pretrained(dir.path);
  const Loaded again = make_model(job_of(dir.path));
  CHECK(again.report.newly_initialized.empty());
  CHECK(again.report.unused.empty());
  check_equal(*model, dynamic_cast<const BertClassifier&>(*again.model));

  const auto config = nlohmann::json::parse(read_file(dir.path / "config.json"));
  CHECK(config["architectures"] == nlohmann::json{"BertForSequenceClassification"});
  CHECK(config["problem_type"] == "single_label_classification");
  CHECK(config["hidden_dropout_prob"] == 0.25);
  CHECK(config["classifier_dropout"] == 0.25);
  CHECK(config["id2label"] == nlohmann::json{{"0", "no"}, {"1", "maybe"}, {"2", "yes"}});
  CHECK(config["label2id"] == nlohmann::json{{"no", 0}, {"maybe", 1}, {"yes", 2}});
  CHECK(config["type_vocab_size"] == 2);
  for (const char* name : {"vocab.txt", "tokenizer_config.json"}) {
    CHECK(read_file(dir.path / name) == read_file(kReferenceBert / name));
  }
}

TEST_CASE("old names of norms, half precision and foreign weights are understood") {
  const TemporaryDirectory dir;
  const auto model = make_bert(tiny_job());
  NamedTensors old;
  for (auto& [name, tensor] : weights(*model)) {
    std::string old_name = name;
    for (const auto& [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
      const size_t at = old_name.find(now);
      if (at != std::string::npos) old_name.replace(at, std::strlen(now), then);
    }
    old.emplace_back(old_name, tensor.detach().to(at::kBFloat16));
  }
  old.emplace_back("bert.embeddings.position_ids", at::arange(64));
  old.emplace_back("cls.predictions.bias", at::zeros(700));
  write_directory(dir.path, old);
  const Loaded loaded = make_model(job_of(dir.path));
  CHECK(loaded.report.newly_initialized.empty());
  CHECK(loaded.report.unused == std::vector<std::string>{"cls.predictions.bias"});
  for (auto& [name, tensor] : weights(*model)) tensor.detach().copy_(tensor.detach().to(at::kBFloat16));
  check_equal(*model, dynamic_cast<const BertClassifier&>(*loaded.model));
}

TEST_CASE("weights of other shapes or types are refused all together, by name") {
  const TemporaryDirectory dir;
  NamedTensors tensors = weights(*make_bert(tiny_job()));
  for (auto& [name, tensor] : tensors) {
    if (name == "classifier.weight") tensor = at::zeros({5, 32});
    if (name == "bert.pooler.dense.bias") tensor = at::zeros({32}, at::kLong);
    if (name == "bert.encoder.layer.1.attention.self.key.bias") tensor = at::zeros({31});
  }
  write_directory(dir.path, tensors);
  CHECK_THROWS_MATCHES(
      make_model(job_of(dir.path)), CheckpointError,
      Message(dir.path.string() + ": the shapes of 3 weights differ from config.json and the job:\n"
                                  "  bert.encoder.layer.1.attention.self.key.bias: got [31], expected [32]\n"
                                  "  bert.pooler.dense.bias: got dtype Long, expected a floating-point one\n"
                                  "  classifier.weight: got [5, 32], expected [3, 32]\n"
                                  "  hint: the classifier's first size is model.num_labels"));
}

TEST_CASE("a file without any weight of BERT is refused") {
  const TemporaryDirectory dir;
  write_directory(dir.path, {{"transformer.wte.weight", at::zeros({2, 2})}});
  CHECK_THROWS_MATCHES(make_model(job_of(dir.path)), CheckpointError,
                       Message(dir.path.string() +
                               ": none of its weights is one of BERT; the first is transformer.wte.weight"));
}

TEST_CASE("random weights are a function of the seed, distributed as in transformers") {
  Job job = tiny_job();
  job.spec.model.init = spec::ModelInit::kRandom;
  const auto model = make_bert(job);
  check_equal(*model, *make_bert(job));
  for (const auto& [name, tensor] : weights(*model)) {
    INFO(name);
    if (name.ends_with(".bias")) {
      CHECK(tensor.abs().max().item<float>() == 0);
    } else if (name.ends_with("LayerNorm.weight")) {
      CHECK(at::equal(tensor, at::ones_like(tensor)));
    } else {  // five standard errors of mean and deviation; the config's initializer_range is 0.2
      const auto n = static_cast<double>(tensor.numel());
      CHECK(std::abs(tensor.mean().item<double>()) < 5 * 0.2 / std::sqrt(n));
      CHECK(std::abs(tensor.std().item<double>() - 0.2) < 5 * 0.2 / std::sqrt(2 * n));
    }
  }
  CHECK(model->named_parameters()["bert.embeddings.word_embeddings.weight"][0].norm().item<float>() == 0);
  job.spec.job.seed = 43;
  CHECK_FALSE(at::equal(make_bert(job)->parameters()[0], model->parameters()[0]));
}

TEST_CASE("model.pretrained must be a directory of a BERT that fits the job") {
  const TemporaryDirectory dir;
  const std::string hint =
      "; hint: scripts/setup.sh makes assets/minilm-l6; any Hugging Face directory of a BERT with "
      "config.json, "
      "model.safetensors and vocab.txt serves";
  CHECK_THROWS_MATCHES(make_model(job_of("")), SpecError,
                       Message("model.pretrained: got nothing; expected a Hugging Face directory" + hint));
  CHECK_THROWS_MATCHES(make_model(job_of("/nowhere")), SpecError,
                       Message("model.pretrained: /nowhere is not a directory" + hint));
  CHECK_THROWS_MATCHES(make_model(job_of(dir.path)), SpecError,
                       Message("model.pretrained: " + dir.path.string() + " has no config.json" + hint));
  Job job = tiny_job();
  const std::string config = (kReferenceBert / "config.json").string();
  CHECK_THROWS_MATCHES(make_model(job, {.vocab_size = 701}), SpecError,
                       Message("model.pretrained: the tokenizer has 701 tokens; " + config +
                               " has vocab_size 700\n1 fault in the job spec"));
  CHECK_NOTHROW(make_model(job, {.vocab_size = 700}));
  job.spec.data.max_length = 65;
  CHECK_THROWS_MATCHES(make_model(job), SpecError,
                       Message("data.max_length: got 65; " + config +
                               " has max_position_embeddings 64\n1 fault in the job spec"));
}

TEST_CASE("a model that cannot be saved says where") {
  CHECK_THROWS_WITH(make_bert(tiny_job())->save_pretrained("/proc/model"),
                    Catch::Matchers::StartsWith("/proc/model: cannot create: "));
}

}  // namespace trainer::model
