#include <algorithm>
#include <catch2/catch.hpp>

#include "../spec/cases.h"
#include "core/error.h"
#include "job/job.h"
#include "spec/load.h"

using namespace trainer;
using spec::Metric;

namespace {

spec::JobSpec complete(const std::string& yaml, std::vector<std::string> overrides = {}) {
  spec::JobSpec s = spec::parse(yaml, "job.yaml", overrides);
  const auto fill = [](std::string& field, const char* value) {
    if (field.empty()) field = value;
  };
  fill(s.model.pretrained, "m");
  for (auto* source : {&s.data.train, &s.data.validation}) {
    fill(source->text, "text");
    fill(source->label, "label");
  }
  fill(s.data.train.path, "train.tsv");
  if (s.said.places.count("data.validation") == 0) fill(s.data.validation.path, "dev.tsv");
  return s;
}

Job resolved(const std::string& yaml, std::vector<std::string> overrides = {}, World world = {},
             int64_t gpus = 0) {
  return resolve(complete(yaml, std::move(overrides)), world, gpus);
}

}  // namespace

TEST_CASE("every spec that does not fit together has its exact message") {
  for (const auto& bad : test::read_cases(TEST_DATA "/spec/job_faults.cases")) {
    INFO("## " << bad.name);
    std::vector<std::string> overrides;
    World world;
    int64_t gpus = 0;
    bool bare = false;
    for (const auto& [option, value] : bad.options) {
      if (option == "set") overrides.push_back(value);
      if (option == "workers") world.size = world.local_size = std::stoll(value);
      if (option == "gpus") gpus = std::stoll(value);
      bare = bare || option == "bare";
    }
    std::string got = "no fault";
    try {
      resolve(bare ? spec::parse(bad.yaml, "job.yaml", overrides) : complete(bad.yaml, overrides), world,
              gpus);
    } catch (const SpecError& error) {
      got = error.what();
    }
    CHECK(got == bad.message());
  }
}

TEST_CASE("what a spec leaves open is resolved") {
  World world;
  world.size = world.local_size = 4;
  const Job job = resolved("job: {name: a}\ntrain: {gradient_accumulation: 2}", {}, world);
  CHECK(job.output_dir == "runs/a");
  CHECK(job.global_batch == 16 * 2 * 4);
  CHECK(job.evaluation_every == 0);
  CHECK(job.backend == "gloo");
  CHECK_FALSE(job.cuda);
  CHECK(job.spec.train.epochs == 3);
  CHECK(job.spec.evaluation.batch_size == 16);
  CHECK(job.warnings.empty());
  CHECK(resolved("job: {name: a}", {}, world, 4).backend == "nccl");
  CHECK(resolved("job: {name: a}", {}, world, 1).cuda);  // one visible GPU a worker
  CHECK(resolved("hardware: {device: cpu, backend: gloo}", {}, world, 4).backend == "gloo");
  CHECK(resolved("job: {name: a}").backend == "none");
  CHECK(resolved("evaluation: {every: 50}").evaluation_every == 50);
  CHECK(resolved("evaluation: {every: never}").evaluation_every == -1);
  CHECK(resolved("data: {validation: {path: \"\"}}").evaluation_every == -1);
}

TEST_CASE("labels and metrics follow the problem where they are not said") {
  CHECK(resolved("data: {label_names: [a, b, c]}").spec.model.num_labels == 3);
  const Job regression = resolved("model: {problem_type: regression}");
  CHECK(regression.spec.model.num_labels == 1);
  CHECK(regression.spec.evaluation.metrics ==
        std::vector{Metric::kLoss, Metric::kPearson, Metric::kSpearman});
  CHECK(resolved("model: {problem_type: regression, num_labels: 2}").spec.model.num_labels == 2);
  const Job best = resolved("evaluation: {metrics: [loss], best: mcc}");
  CHECK(best.spec.evaluation.metrics == std::vector{Metric::kLoss, Metric::kMcc});
}

TEST_CASE("a token budget alone limits the batch") {
  const Job job = resolved("train: {batch_tokens: 4096}");
  CHECK(job.global_batch == 0);
  CHECK(job.spec.train.batch_size == 4096);
  CHECK(job.spec.evaluation.batch_size == 0);  // evaluation has the same budget
  CHECK(resolved("train: {batch_tokens: 4096}\nevaluation: {batch_size: 8}").spec.evaluation.batch_size == 8);
  CHECK(resolved("train: {batch_tokens: 4096, batch_size: 16}").spec.train.batch_size == 16);
}

TEST_CASE("an override beats the key that it excludes") {
  const Job steps = resolved("train: {epochs: 3}", {"train.steps=5"});
  CHECK(steps.spec.train.steps == 5);
  CHECK_FALSE(steps.spec.train.epochs);
  CHECK(resolved("train: {steps: 3}", {"train.epochs=5"}).spec.train.epochs == 5);
  CHECK(resolved("schedule: {warmup_steps: 3}", {"schedule.warmup_ratio=0.1"}).spec.schedule.warmup_steps ==
        0);
  CHECK(resolved("schedule: {warmup_ratio: 0.1}", {"schedule.warmup_steps=3"}).spec.schedule.warmup_ratio ==
        0);
}

TEST_CASE("settings without effect are warned of, at their places") {
  const std::string yaml = R"(train: {tf32: true, precision: bf16, loss_scale: {initial: 2}}
optimizer: {type: sgd, beta1: 0.8, beta2: 0.9, eps: 1.0e-3}
schedule: {type: constant, min_lr_ratio: 0.1, power: 2}
)";
  CHECK(resolved(yaml).warnings ==
        std::vector<std::string>{
            "job.yaml:1:15: train.tf32: has no effect on CPUs",
            "job.yaml:1:50: train.loss_scale: has no effect in bf16, only in fp16",
            "job.yaml:2:53: optimizer.eps: has no effect with optimizer.type sgd",
            "job.yaml:2:31: optimizer.beta1: has no effect with optimizer.type sgd",
            "job.yaml:2:43: optimizer.beta2: has no effect with optimizer.type sgd",
            "job.yaml:3:42: schedule.min_lr_ratio: has no effect with schedule.type constant",
            "job.yaml:3:54: schedule.power: has no effect with schedule.type constant"});
  CHECK(
      resolved("optimizer: {momentum: 0.9, nesterov: true}").warnings ==
      std::vector<std::string>{"job.yaml:1:23: optimizer.momentum: has no effect with optimizer.type adamw",
                               "job.yaml:1:38: optimizer.nesterov: has no effect with optimizer.type adamw"});
  CHECK(resolved("schedule: {warmup_steps: 100}", {"train.steps=5"}).warnings ==
        std::vector<std::string>{
            "job.yaml:1:26: schedule.warmup_steps: got 100 of train.steps 5: the learning rate "
            "never reaches its peak; expected fewer"});
}

TEST_CASE("a resolved spec, written and read again, resolves to itself") {
  for (const char* yaml :
       {"job: {name: a}", "data: {validation: {path: \"\"}}", "model: {problem_type: regression}",
        "train: {batch_tokens: 4096}", "train: {steps: 9}", "data: {label_names: [a, b, c]}",
        "evaluation: {every: 10, best: f1, early_stop_patience: 2}",
        "optimizer: {type: sgd, momentum: 0.9}"}) {
    INFO(yaml);
    const Job job = resolved(yaml);
    const Job again = resolve(spec::parse(spec::to_yaml(job.spec), "resolved.yaml"), World(), 0);
    CHECK(again.spec == job.spec);
    CHECK(again.warnings.empty());
    CHECK(again.evaluation_every == job.evaluation_every);
  }
}

TEST_CASE("a spec made in code has faults without places") {
  CHECK_THROWS_MATCHES(
      resolve(spec::JobSpec(), World(), 0), SpecError,
      Catch::Matchers::Message("model.pretrained: not given; expected a Hugging Face directory\n"
                               "data.train.path: not given; expected a .tsv or .csv file\n"
                               "data.train.text: not given; expected the column of the text\n"
                               "data.train.label: not given; expected the column of the label\n"
                               "4 faults in the job spec"));
}
