#include "optim/step_control.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "optim_reference.h"

using trainer::optim::learning_rate;
using trainer::optim::StepControl;
using trainer::test::Reference;
namespace spec = trainer::spec;

namespace {

const float kInf = std::numeric_limits<float>::infinity();

spec::Train train_of(double clip, spec::Precision precision = spec::Precision::kFp32) {
  spec::Train t;
  t.clip_grad_norm = clip;
  t.precision = precision;
  return t;
}

spec::Schedule linear() {
  return {};
}

}  // namespace

TEST_CASE("learning rates are those of transformers' schedules") {
  const std::map<std::string, spec::ScheduleType> types = {
      {"constant", spec::ScheduleType::kConstant},     {"linear", spec::ScheduleType::kLinear},
      {"cosine", spec::ScheduleType::kCosine},         {"cosine_min", spec::ScheduleType::kCosine},
      {"polynomial", spec::ScheduleType::kPolynomial}, {"inverse_sqrt", spec::ScheduleType::kInverseSqrt}};
  const Reference reference;
  for (const auto& entry : reference.json["schedules"]) {
    const auto name = entry["name"].get<std::string>();
    spec::Schedule schedule;
    schedule.type = types.at(name);
    schedule.warmup_steps = entry["warmup"];
    schedule.min_lr_ratio = name == "cosine_min" || name == "polynomial" ? 0.1 : 0.0;
    schedule.power = 2.0;
    const auto rates = entry["lr"].get<std::vector<double>>();
    for (size_t step = 0; step < rates.size(); ++step) {
      INFO(name << " warmup " << schedule.warmup_steps << " step " << step);
      CHECK(learning_rate(schedule, 0.002, static_cast<int64_t>(step), 50) ==
            Approx(rates[step]).margin(1e-12));
    }
  }
}

TEST_CASE("a warm-up ratio is rounded up to steps and gives way to warmup_steps") {
  spec::Schedule s;
  s.warmup_ratio = 0.05;
  CHECK(learning_rate(s, 1.0, 2, 50) == Approx(2.0 / 3));  // ceil(2.5) = 3 steps
  s.warmup_steps = 4;
  CHECK(learning_rate(s, 1.0, 2, 50) == Approx(0.5));
}

TEST_CASE("norm and clipped gradients are those of clip_grad_norm_, whatever the loss scale") {
  const Reference reference;
  for (const auto& c : reference.json["clip"]) {
    spec::Train train = train_of(c["max_norm"], spec::Precision::kFp16);
    train.loss_scale.initial = 96;
    StepControl control(train, linear(), 0.1, 10, at::kCPU);
    const auto g = reference.tensors(reference.json["clip_gradients"]);
    std::vector<at::Tensor> scaled;
    for (const auto& t : g) scaled.push_back(t * 96);
    scaled.emplace_back();  // a parameter that took no part
    const auto r = control.prepare(scaled);
    CHECK(r.grad_norm.item<double>() == Approx(c["norm"].get<double>()).epsilon(1e-6));
    CHECK(r.found_inf.item<float>() == 0);
    scaled.pop_back();
    for (auto& t : scaled) t = t / r.grad_scale;
    CHECK(reference.max_difference(scaled, c["clipped"]) < 1e-6);
  }
}

TEST_CASE("a clip of 0 is no clipping") {
  StepControl control(train_of(0), linear(), 0.1, 10, at::kCPU);
  CHECK(control.prepare({at::full({4}, 1e6F)}).grad_scale.item<float>() == 1);
}

TEST_CASE(
    "the loss scale grows and backs off as torch.amp.GradScaler's, and the schedule waits for skipped "
    "steps") {
  const Reference reference;
  spec::Train train = train_of(1.0, spec::Precision::kFp16);
  train.loss_scale = {1024.0, 2.0, 0.25, 3};
  StepControl control(train, linear(), 1.0, 20, at::kCPU);
  int64_t good = 0;
  for (size_t step = 0; step < reference.json["scaler"].size(); ++step) {
    INFO("step " << step);
    const auto& expected = reference.json["scaler"][step];
    CHECK(control.loss_factor(1).item<double>() == expected["scale"].get<double>());
    const bool bad = step == 2 || step == 3 || step == 9;
    const at::Tensor gradient = at::ones({2}) * control.loss_factor(1);
    if (bad) gradient[0] = kInf;
    const auto r = control.prepare({gradient});
    CHECK(r.found_inf.item<float>() == (expected["taken"].get<bool>() ? 0 : 1));
    CHECK(r.loss_scale.item<double>() == expected["scale"].get<double>());
    CHECK(r.lr.item<double>() == Approx(1.0 - static_cast<double>(good) / 20));
    good += bad ? 0 : 1;
  }
}

TEST_CASE("the initial loss scale is of the mean loss, not of its sum") {
  StepControl control(train_of(0, spec::Precision::kFp16), linear(), 0.1, 10, at::kCPU);
  CHECK(control.loss_factor(4096).item<double>() == 65536.0 / 4096);
  CHECK(control.prepare({at::ones({1})}).grad_scale.item<double>() == 65536);
}

TEST_CASE("inf and NaN are found") {
  StepControl control(train_of(1.0), linear(), 0.1, 10, at::kCPU);
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const at::Tensor g = at::ones({100});
    g[57] = bad;
    CHECK(control.prepare({at::ones({3}), g}).found_inf.item<float>() == 1);
  }
  CHECK(control.prepare({at::ones({3})}).found_inf.item<float>() == 0);
  CHECK(control.prepare({}).grad_norm.item<float>() == 0);
}

TEST_CASE("fp32 and bf16 have no loss scale") {
  StepControl control(train_of(1.0, spec::Precision::kBf16), linear(), 0.1, 10, at::kCPU);
  control.prepare({at::full({2}, kInf)});
  CHECK(control.loss_factor(1).item<float>() == 1);
}

TEST_CASE("steps beyond the schedule's end keep its last rate") {
  StepControl control(train_of(1.0), linear(), 0.1, 1, at::kCPU);
  for (int i = 0; i < 4; ++i) control.prepare({at::ones({2})});
  CHECK(control.prepare({at::ones({2})}).lr.item<float>() == 0);
}
