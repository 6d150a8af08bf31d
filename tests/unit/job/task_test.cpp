#include "job/task.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "spec/load.h"
#include "temporary_directory.h"

using namespace trainer;
using Catch::Matchers::Message;
using Kind = Task::Kind;

namespace {

constexpr const char* kBert =
    "model: {type: bert_classifier, pretrained: m, init: random}\n"
    "data: {train: {path: gone.tsv, text: a, label: b}, validation: {path: dev.tsv, label: c}}\n";
constexpr const char* kGpt =
    "model: {type: gpt, gpt: {layers: 2}}\n"
    "data: {train: {path: text.txt}, validation_fraction: 0.1, tokenizer: {type: char}}\n";

spec::JobSpec spec_of(const char* yaml, const TemporaryDirectory& output) {
  return spec::parse(yaml, "job.yaml", {"job.output_dir=" + output.path.string()});
}

}  // namespace

TEST_CASE("a task on a saved model has the model's own weights and the data that it is judged by") {
  const TemporaryDirectory output;
  output.write("best/config.json", "{}");
  Task task{Kind::kEvaluate, {}, {}};
  const spec::JobSpec spec = for_saved_model(spec_of(kBert, output), task);
  CHECK(task.model == output.path / "best");
  CHECK(spec.model.pretrained == task.model.string());
  CHECK(spec.model.init == spec::ModelInit::kPretrained);
  CHECK(spec.data.train == spec.data.validation);
  CHECK(spec.data.train.path == "dev.tsv");
  CHECK(spec.data.train.text == "a");
  CHECK(spec.data.train.label == "c");
}

TEST_CASE("a saved language model brings its form and the tokenizer that was made of the training text") {
  const TemporaryDirectory output;
  output.write("final/config.json", "{}");
  Task task{Kind::kEvaluate, {}, {}};
  const spec::JobSpec spec = for_saved_model(spec_of(kGpt, output), task);
  CHECK(spec.model.gpt == spec::Gpt());
  CHECK(spec.data.tokenizer == spec::TokenizerSource());
  CHECK(spec.data.train.path == "text.txt");  // its last part is the validation data
}

TEST_CASE("a saved recommender brings its shape; where its tables are kept is the job's to say") {
  const TemporaryDirectory output;
  output.write("final/config.json", "{}");
  Task task{Kind::kPredict, {}, {}};
  const spec::JobSpec spec =
      for_saved_model(spec_of("model:\n"
                              "  type: recommender\n"
                              "  recommender: {embedding_dim: 8, top_mlp: [16], embedding_backend: native,\n"
                              "                tables: {user: {rows: 100, sharding: row}}}\n"
                              "data: {train: {path: gone.csv}, validation: {path: dev.csv}}\n",
                              output),
                      task);
  spec::Recommender expected;
  expected.embedding_backend = spec::EmbeddingBackend::kNative;
  expected.tables["user"].sharding = spec::Sharding::kRow;
  CHECK(spec.model.recommender == expected);
  CHECK(spec.data.train.path == "dev.csv");
}

TEST_CASE("the model is the one that was said, else the best, else the final one") {
  const TemporaryDirectory output;
  output.write("final/config.json", "{}");
  output.write("mine/config.json", "{}");
  const auto model = [&](const std::filesystem::path& said) {
    Task task{Kind::kPredict, said, {}};
    for_saved_model(spec_of(kBert, output), task);
    return task.model.filename();
  };
  CHECK(model("") == "final");
  output.write("best/config.json", "{}");
  CHECK(model("") == "best");
  CHECK(model(output.path / "mine") == "mine");
}

TEST_CASE("what a task lacks is said: a model, data, predictions of a language model") {
  const TemporaryDirectory output;
  const std::string at = output.path.string();
  const auto fails = [&](const char* yaml, Task task, const std::string& message) {
    CHECK_THROWS_MATCHES(for_saved_model(spec_of(yaml, output), task), SpecError, Message(message));
  };
  fails(kBert, {Kind::kEvaluate, {}, {}},
        at + ": has neither best nor final; expected a model that trainer run saved there\n"
             "hint: --model names another one");
  fails(kBert, {Kind::kEvaluate, at + "/none", {}},
        "--model: got " + at + "/none; there is no such directory");
  fails(kBert, {Kind::kEvaluate, at, {}}, "--model: " + at + " has no config.json; expected a saved model");
  output.write("best/config.json", "{}");
  fails(kBert, {Kind::kEvaluate, at, {}},
        "--model: " + at + " has no config.json; expected a saved model\nhint: " + at + "/best");
  fails("model: {type: bert_classifier}\ndata: {train: {path: a.tsv}}\n", {Kind::kPredict, {}, {}},
        "predict: there is no data: the job has no data.validation.path; expected it, or --data");
  fails(kGpt, {Kind::kPredict, {}, {}},
        "predict: model.type is gpt, which has no prediction for each row\n"
        "hint: trainer generate, or trainer eval");
}

TEST_CASE("an output that can not be written is refused before anything is loaded") {
  const TemporaryDirectory output;
  const std::string at = output.path.string();
  const auto fails = [&](Kind kind, const std::string& path, const std::string& message) {
    CHECK_THROWS_MATCHES(check_output({kind, {}, path}), SpecError, Message(message));
  };
  fails(Kind::kPredict, at + "/p.txt",
        "--output: got " + at + "/p.txt; expected a name that ends in .csv or .parquet");
  fails(Kind::kPredict, at + "/no/p.csv",
        "--output: got " + at + "/no/p.csv; there is no directory " + at + "/no");
  fails(Kind::kEvaluate, at, "--json: got " + at + ", a directory; expected a file");
  CHECK_NOTHROW(check_output({Kind::kPredict, {}, at + "/p.parquet"}));
  CHECK_NOTHROW(check_output({Kind::kPredict, {}, "p.csv"}));
  CHECK_NOTHROW(check_output({Kind::kEvaluate, {}, {}}));
}
