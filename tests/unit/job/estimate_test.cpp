#include "job/estimate.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "spec/load.h"
#include "temporary_directory.h"

namespace fs = std::filesystem;
using Catch::Matchers::Message;
using namespace trainer;

namespace {

// A Hugging Face directory.
struct ModelDirectory : TemporaryDirectory {
  explicit ModelDirectory(const std::string& config) { write("config.json", config); }
};

constexpr const char* kTiny =
    R"({"model_type": "bert", "vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 2,
  "intermediate_size": 40, "max_position_embeddings": 31, "type_vocab_size": 1})";

Job job_on(const fs::path& model, const std::string& yaml, World world = {}) {
  return resolve(spec::parse(yaml, "job.yaml",
                             {"model.pretrained=" + model.string(), "data.train.text=a", "data.train.label=b",
                              "data.train.path=t.tsv", "data.validation.path=d.tsv"}),
                 world, 0);
}

}  // namespace

TEST_CASE("parameters and FLOPs of a BERT are those of transformers and torch's counter") {
  const auto rows = nlohmann::json::parse(read_file(TEST_DATA "/job/bert_sizes.json"));
  REQUIRE(rows.size() == 9);
  for (const auto& row : rows) {
    const ModelDirectory model(row["config"].dump());
    const BertShape shape = BertShape::load(model.path / "config.json");
    INFO(row.dump());
    CHECK(shape.parameters(row["num_labels"]) == row["parameters"]);
    CHECK(shape.forward_flops(row["batch"], row["tokens"], row["num_labels"]) ==
          row["forward_flops"].get<double>());
  }
}

TEST_CASE("a job's memory, steps and FLOPs follow from its spec") {
  const ModelDirectory model(kTiny);
  const BertShape shape = BertShape::load(model.path / "config.json");
  World world;
  world.size = world.local_size = 2;
  const std::string common = "train: {epochs: 3, batch_size: 4, gradient_accumulation: 2, precision: ";
  const Job fp32 = job_on(model.path, common + "fp32}\ndata: {max_length: 16}", world);
  const Estimate e = estimate(fp32, {100, 10});
  CHECK(e.parameters == 12850);
  CHECK(e.trainable == 12850);
  CHECK(e.weight_bytes == 4 * 12850);
  CHECK(e.gradient_bytes == 4 * 12850);
  CHECK(e.optimizer_bytes == 8 * 12850);
  CHECK(e.activation_bytes > 0);
  CHECK(e.steps_per_epoch == 7);  // 6 steps of 16 samples and one of 4
  CHECK(e.steps == 21);
  CHECK(e.step_flops == Approx(3 * shape.forward_flops(16, 10, 2)));
  CHECK(estimate(fp32).steps == 0);
  CHECK(estimate(fp32).step_flops == Approx(3 * shape.forward_flops(16, 16, 2)));

  const Estimate bf16 = estimate(job_on(model.path, common + "bf16}\ndata: {max_length: 16}", world));
  const int64_t matrices = 2 * (4 * 24 * 24 + 2 * 24 * 40);
  CHECK(bf16.weight_bytes == 4 * 12850 + 2 * matrices);
  CHECK(bf16.activation_bytes < e.activation_bytes);

  const auto optimizer_bytes = [&](const std::string& yaml) {
    return estimate(job_on(model.path, yaml)).optimizer_bytes;
  };
  CHECK(optimizer_bytes("optimizer: {type: sgd}") == 0);
  CHECK(optimizer_bytes("optimizer: {type: sgd, momentum: 0.9}") == 4 * 12850);
  CHECK(optimizer_bytes("optimizer: {type: adagrad}") == 4 * 12850);
  CHECK(estimate(job_on(model.path, "train: {steps: 9}")).steps == 9);
  const Job by_tokens = job_on(model.path, "train: {batch_tokens: 160}", world);
  CHECK(estimate(by_tokens, {0, 10}).step_flops == Approx(3 * shape.forward_flops(32, 10, 2)));
}

TEST_CASE("a job is described in a table") {
  const ModelDirectory model(kTiny);
  World world;
  world.size = world.local_size = 2;
  const Job job = job_on(model.path,
                         "job: {name: a}\n"
                         "train: {precision: bf16, tf32: true}\n"
                         "schedule: {warmup_steps: 100}\n"
                         "data: {max_length: 31}\n"
                         "evaluation: {metrics: [loss, accuracy], best: f1}",
                         world);
  const DataSize size{3668, 12.5};
  CHECK(describe(job, estimate(job, size), size) == fmt::format(R"(  job        a; seed 42; output in runs/a
  world      2 workers on 1 node, cpu, gloo
  model      bert_classifier, pretrained {}; single_label_classification, 2 outputs
  parameters 12,850, 12,850 of them trainable
  data       t.tsv (3,668 samples); validation d.tsv; at most 31 tokens, mean 12.5
  train      3 epochs, 345 steps; bf16 (TF32); gradient norm clipped at 1
  batch      32 samples = 16 a worker x 1 accumulated x 2 workers
  optimizer  adamw, learning rate 5e-05, weight decay 0.01 (not of biases and norms)
  schedule   linear, 100 steps of warm-up
  evaluation every epoch: loss, accuracy, f1; best by f1
  memory     0.9 MiB a worker = weights 0.1 MiB + gradients 0.0 MiB + optimizer 0.1 MiB + activations up to 0.7 MiB (estimates)
  compute    17.8 MFLOP a step of 12.5 tokens a sequence
  warning    job.yaml:2:32: train.tf32: has no effect on CPUs
)",
                                                                model.path.string()));
}

TEST_CASE("a config.json that is none of a BERT is refused") {
  const auto load = [](const char* config) {
    const ModelDirectory model(config);
    try {
      BertShape::load(model.path / "config.json");
    } catch (const SpecError& error) {
      return std::string(error.what()).substr(model.path.string().size());
    }
    return std::string("no fault");
  };
  CHECK(load(R"({"model_type": "gpt2"})") == "/config.json: model_type: got \"gpt2\"; expected \"bert\"");
  CHECK(load(R"({"hidden_size": -3})") ==
        "/config.json: hidden_size: got -3; expected an integer from 1 to 100000000");
  CHECK(load(R"({"hidden_size": "384"})") ==
        "/config.json: hidden_size: got \"384\"; expected an integer from 1 to 100000000");
  CHECK(load("[]") == "/config.json: expected a JSON object");
  CHECK(load("{").rfind("/config.json: not valid JSON: ", 0) == 0);
  CHECK_THROWS_MATCHES(BertShape::load("/nowhere/config.json"), SpecError,
                       Message("/nowhere/config.json: cannot open: No such file or directory"));
}

TEST_CASE("files that a job needs and lacks are named together") {
  const ModelDirectory model(kTiny);
  const std::string t = (model.path / "t.tsv").string();
  model.write("t.tsv", "a\tb\n");
  model.write("vocab.txt", "[PAD]\n");
  const auto check = [&](std::vector<std::string> overrides) {
    std::vector<std::string> all = {"model.pretrained=" + model.path.string(), "data.train.text=a",
                                    "data.train.label=b", "data.train.path=" + t, "data.max_length=16"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    check_files(resolve(spec::parse("job: {name: a}", "job.yaml", all), World(), 0));
  };
  CHECK_NOTHROW(check({"model.init=random"}));
  CHECK_THROWS_MATCHES(check({}), SpecError,
                       Message("--set model.pretrained: " + model.path.string() +
                               " has no weights; expected model.safetensors, or model.init: random\n"
                               "1 fault in job.yaml"));
  CHECK_THROWS_MATCHES(check({"model.init=random", "data.max_length=64", "data.train.path=/nowhere/a.tsv",
                              "data.validation.path=" + model.path.string(), "job.output_dir=" + t}),
                       SpecError,
                       Message("--set data.max_length: got 64; " + model.path.string() +
                               "/config.json has max_position_embeddings 31\n" +
                               "--set data.train.path: got \"/nowhere/a.tsv\"; there is no such file\n" +
                               "--set data.validation.path: got \"" + model.path.string() +
                               "\", a directory; expected a file\n" + "--set job.output_dir: got \"" + t +
                               "\", a file; expected a directory\n" + "4 faults in job.yaml"));
  CHECK_THROWS_MATCHES(check({"model.pretrained=/nowhere/bert"}), SpecError,
                       Message("--set model.pretrained: got \"/nowhere/bert\"; there is no such directory\n"
                               "1 fault in job.yaml"));
  fs::remove(model.path / "vocab.txt");
  model.write("pytorch_model.bin", "");
  model.write("config.json", "{");
  try {
    check({});
    FAIL("no fault");
  } catch (const SpecError& error) {
    const std::string text = error.what();
    CHECK(text.find("has no tokenizer; expected vocab.txt or tokenizer.json") != std::string::npos);
    CHECK(text.find("has no weights; expected model.safetensors (convert pytorch_model.bin to it)") !=
          std::string::npos);
    CHECK(text.find("config.json: not valid JSON") != std::string::npos);
    CHECK(text.find("3 faults in job.yaml") != std::string::npos);
  }
}
