#include "job/estimate.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "job/bert_config.h"
#include "job/gpt_config.h"
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
    R"({"model_type": "bert", "vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
  "intermediate_size": 40, "max_position_embeddings": 31, "type_vocab_size": 1})";

Job job_on(const fs::path& model, const std::string& yaml, World world = {}) {
  spec::JobSpec spec =
      spec::parse(yaml, "job.yaml",
                  {"model.pretrained=" + model.string(), "data.train.text=a", "data.train.label=b",
                   "data.train.path=t.tsv", "data.validation.path=d.tsv"});
  if (!spec.said.contains("data.max_length")) spec.data.max_length = 16;
  return resolve(spec, world, 0);
}

}  // namespace

TEST_CASE("a job's memory, steps and FLOPs follow from its spec") {
  const ModelDirectory model(kTiny);
  const BertConfig config = BertConfig::load(model.path / "config.json");
  const auto step_flops = [&](double sequences, double tokens) {
    return Approx(3 * config.forward_flops(sequences, sequences * tokens, sequences * tokens * tokens, 2));
  };
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
  CHECK(e.step_flops == step_flops(16, 10));
  CHECK(estimate(fp32).steps == 0);
  CHECK(estimate(fp32).step_flops == step_flops(16, 16));

  const int64_t matrices = 2 * (4 * 24 * 24 + 2 * 24 * 40);  // copies of them where ATen multiplies
  Job bf16 = job_on(model.path, common + "bf16}\ndata: {max_length: 16}", world);
  CHECK(estimate(bf16).weight_bytes == 4 * 12850);
  CHECK(estimate(bf16).activation_bytes < e.activation_bytes);
  bf16.cuda = true;
  CHECK(estimate(bf16).weight_bytes == 4 * 12850 + 2 * matrices);
  CHECK(estimate(job_on(model.path, common + "fp16}\ndata: {max_length: 16}")).weight_bytes ==
        4 * 12850 + 2 * matrices);

  const auto optimizer_bytes = [&](const std::string& yaml) {
    return estimate(job_on(model.path, yaml)).optimizer_bytes;
  };
  CHECK(optimizer_bytes("optimizer: {type: sgd}") == 0);
  CHECK(optimizer_bytes("optimizer: {type: sgd, momentum: 0.9}") == 4 * 12850);
  CHECK(optimizer_bytes("optimizer: {type: adagrad}") == 4 * 12850);
  CHECK(estimate(job_on(model.path, "train: {steps: 9}")).steps == 9);
  const Job by_tokens = job_on(model.path, "train: {batch_tokens: 160}", world);
  CHECK(estimate(by_tokens, {100, 10}).steps == 0);
  CHECK(estimate(by_tokens, {100, 10, 17}).steps == 17);
  CHECK(estimate(by_tokens, {0, 10}).step_flops == step_flops(32, 10));
}

TEST_CASE("a GPT's memory follows from its shape, precision and what it computes again") {
  const auto of_said = [](const std::vector<std::string>& more, World world = {}) {
    return estimate(resolve(
        spec::parse("model: {type: gpt, gpt: {layers: 12, heads: 4, hidden_size: 64, vocab_size: 100}}\n"
                    "data: {train: {path: a}, max_length: 64}\ntrain: {batch_size: 8, epochs: 1}\n",
                    "job.yaml", more),
        world, 0));
  };
  const auto of = [&](const std::string& more, World world = {}) {
    return of_said({"evaluation.every=never", more}, world);
  };
  const Estimate e = of("train.precision=fp32");
  const int64_t layer = 64 * (3 * 64 + 64 + 8 * 64) + (3 + 1 + 4 + 1) * 64 + 4 * 64;
  CHECK(e.parameters == (128 + 64) * 64 + 12 * layer + 2 * 64);
  CHECK(e.weight_bytes == 4 * e.parameters);
  CHECK(e.optimizer_bytes == 8 * e.parameters);
  CHECK(e.mean_bytes == 0);
  CHECK(of("train.ema_decay=0.9").mean_bytes == 4 * e.parameters);
  // Kept of a token and layer, by hand: two residuals and norms, queries, keys, values, context, sums of
  // softmax, the MLP before and after GELU; less the gradients that are made as they go.
  const double kept = 512.0 * 12 * (4 * (4 * 64 + 3 * 64 + 64 + 2 * 256) + 4 * 4);
  CHECK(e.activation_bytes > kept - 4.0 * static_cast<double>(e.parameters));
  CHECK(e.activation_bytes < 1.3 * kept);
  World two;
  two.size = two.local_size = 2;
  CHECK(of("train.precision=fp32", two).activation_bytes > kept);
  CHECK(of("train.gradient_accumulation=2").activation_bytes > kept);
  const double mlp = of("train.recompute=mlp").activation_bytes,
               block = of("train.recompute=block").activation_bytes;
  CHECK(mlp < e.activation_bytes);
  CHECK(block < mlp);
  CHECK(of("train.precision=bf16").activation_bytes < e.activation_bytes);
  // An evaluation's batch, when it is the larger: a layer's residuals and norms, attention and MLP at a time.
  const double evaluation = 4.0 * (4 * 64 + 3 * 64 + 64 + 2 * 256) * 64 * 1024;
  const auto evaluated = [&](const std::string& batch_size) {
    return of_said({"data.validation.path=b", "train.precision=fp32", "evaluation.batch_size=" + batch_size})
        .activation_bytes;
  };
  CHECK(evaluated("1024") > evaluation);
  CHECK(evaluated("1024") < 1.2 * evaluation);
  CHECK(evaluated("1") == e.activation_bytes);
  CHECK(e.step_flops ==
        3 * 8 *
            GptConfig(load_gpt_config(resolve(
                          spec::parse("model: {type: gpt, gpt: {layers: 12, heads: 4, hidden_size: 64, "
                                      "vocab_size: 100}}\ndata: {train: {path: a}, max_length: 64}",
                                      "job.yaml", {}),
                          World(), 0)))
                .forward_flops(64, 64 * 65 / 2));
}

TEST_CASE("parameters that decay and those spared are counted") {
  const ModelDirectory model(kTiny);
  const auto of = [&](const std::string& yaml) { return estimate(job_on(model.path, yaml)); };
  const Estimate e = of("job: {name: a}");
  CHECK(e.decayed.count == (101 + 31 + 1) * 24 + 2 * (4 * 24 * 24 + 2 * 24 * 40) + 24 * 24 + 2 * 24);
  CHECK(e.decayed.tensors == 3 + 2 * 4 + 2);
  CHECK(e.spared.count == e.parameters - e.decayed.count);
  CHECK(e.spared.tensors == 2 + 2 * 8 + 2);
  const Estimate all = of("optimizer: {decay_bias_and_norm: true}");
  CHECK(all.decayed.count == all.parameters);
  CHECK(all.decayed.tensors == e.decayed.tensors + e.spared.tensors);
  CHECK(all.spared.tensors == 0);
}

TEST_CASE("more steps than a table of learning rates holds are refused") {
  const ModelDirectory model(kTiny);
  CHECK_THROWS_MATCHES(estimate(job_on(model.path, "train: {epochs: 1000000, batch_size: 1}"), {101, 5}),
                       SpecError,
                       Message("job.yaml:1:17: train.epochs: got 1000000, 101000000 steps in all; expected "
                               "at most 100000000\n1 fault in job.yaml"));
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
  CHECK(describe(job, estimate(job, size), size, "a CPU") ==
        fmt::format(R"(  job        a; seed 42; output in runs/a
  world      2 workers on 1 node, cpu, gloo
  machine    a CPU
  model      bert_classifier, pretrained {}; single_label_classification, 2 outputs
  parameters 12,850, 12,850 of them trainable
  data       t.tsv (3,668 samples); validation d.tsv; at most 31 tokens, mean 12.5
  train      3 epochs, 345 steps; bf16 (TF32); gradient norm clipped at 1
  batch      32 samples = 16 a worker x 1 accumulated x 2 workers
  optimizer  adamw, learning rate 5e-05; weight decay 0.01 on 12,264 parameters in 13 tensors, none on 586 in 20 (biases and norms)
  schedule   linear, 100 steps of warm-up
  evaluation every epoch: loss, accuracy, f1; best by f1
  memory     151 MiB a worker = weights 0.0 MiB + gradients 0.0 MiB + optimizer 0.1 MiB + activations up to 0.8 MiB + program 150 MiB (estimates)
  compute    17.8 MFLOP a step of 12.5 tokens a sequence
  warning    job.yaml:2:32: train.tf32: has no effect on CPUs
)",
                    model.path.string()));
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
  CHECK_THROWS_MATCHES(check({"model.init=random", "data.train.text_pair=c"}), SpecError,
                       Message("--set data.train.text_pair: got \"c\"; " + model.path.string() +
                               "/config.json has type_vocab_size 1, a pair needs 2\n1 fault in job.yaml"));
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
