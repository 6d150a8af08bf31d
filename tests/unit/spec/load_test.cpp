#include "spec/load.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "spec/starter.h"

using Catch::Matchers::Message;
using namespace trainer::spec;

namespace {

// As design.md shows it.
constexpr const char* kMrpc = R"(job: {name: bert_mrpc, seed: 42, output_dir: runs/bert_mrpc}
model:
  type: bert_classifier
  pretrained: assets/minilm-l6          # a Hugging Face directory
  num_labels: 2
data:
  train: {path: data/mrpc/train.tsv, text: "#1 String", text_pair: "#2 String", label: Quality}
  validation: {path: data/mrpc/dev.tsv}  # what is not said is as in train
  max_length: 128
train: {epochs: 3, batch_size: 16, gradient_accumulation: 1, precision: bf16, clip_grad_norm: 1.0}
optimizer: {type: adamw, lr: 5.0e-5, weight_decay: 0.01}
schedule: {type: linear, warmup_steps: 100}
evaluation: {every: epoch, metrics: [accuracy, f1], best: f1}
parallel: {strategy: ddp}
launch: {nproc_per_node: auto, env: {NCCL_DEBUG: WARN}}
)";

}  // namespace

TEST_CASE("the design's example is read, with defaults for the rest") {
  const JobSpec spec = parse(kMrpc, "job.yaml");
  CHECK(spec.job.name == "bert_mrpc");
  CHECK(spec.model.pretrained == "assets/minilm-l6");
  CHECK(spec.data.train.text == "#1 String");
  CHECK(spec.train.epochs == 3);
  CHECK_FALSE(spec.train.steps);
  CHECK(spec.train.precision == Precision::kBf16);
  CHECK(spec.optimizer.lr == 5e-5);
  CHECK(spec.schedule.warmup_steps == 100);
  CHECK(spec.evaluation.metrics == std::vector{Metric::kAccuracy, Metric::kF1});
  CHECK(spec.evaluation.best == Metric::kF1);
  CHECK(spec.launch.env.at("NCCL_DEBUG") == "WARN");
  CHECK(spec.parallel.timeout_s == 600);
}

TEST_CASE("validation is as train where it says nothing") {
  const JobSpec spec = parse(kMrpc, "job.yaml", {"data.validation.label=Other"});
  CHECK(spec.data.validation.path == "data/mrpc/dev.tsv");
  CHECK(spec.data.validation.text_pair == "#2 String");
  CHECK(spec.data.validation.label == "Other");
  CHECK(parse("data: {train: {path: a.csv}}", "x").data.validation.path.empty());
}

TEST_CASE("a spec written as YAML is read back to the same spec") {
  CHECK(parse(to_yaml(JobSpec()), "x") == JobSpec());
  JobSpec spec = parse(kMrpc, "job.yaml");
  spec.model.hidden_dropout = 0.1;
  spec.model.classifier_dropout = 0.0;
  spec.optimizer.eps = 1e-38;
  spec.optimizer.lr = 1e-300;
  spec.optimizer.weight_decay = 0.1 + 0.2;
  spec.data.label_names = {"yes",     "no",    "3", "a: b", "\"quoted\" \\ \t\n",
                           "${HOME}", "$${x}", "",  "ä €",  "\x7f"};
  spec.launch.env = {{"A", "1"}, {"B", "true"}, {"on", "off"}};
  spec.data.validation.path = "";
  CHECK(parse(to_yaml(spec), "x") == spec);
}

TEST_CASE("every starter is a valid spec") {
  CHECK(parse(starter("bert"), "bert").evaluation.best == Metric::kF1);
  CHECK(parse(starter("gpt"), "gpt").model.gpt.layers == 6);
  CHECK_THROWS_MATCHES(starter("bart"), trainer::SpecError,
                       Message("trainer init bart: no such starter; expected bert or gpt"));
}
