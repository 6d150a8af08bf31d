#include "optim/optimizer.h"

#include <catch2/catch.hpp>

#include "optim_reference.h"

using trainer::optim::make_optimizer;
using trainer::optim::ParameterGroup;
using trainer::test::Reference;
namespace spec = trainer::spec;

namespace {

struct Case {
  const char* name;
  spec::OptimizerType type;
  double lr, decay;
  double momentum = 0;
  bool nesterov = false;
};

std::vector<ParameterGroup> groups_of(const std::vector<at::Tensor>& p, double decay) {
  return {{"decay", decay, {"a", "b"}, {p[0], p[1]}}, {"no_decay", 0.0, {"c", "d"}, {p[2], p[3]}}};
}

spec::Optimizer options_of(const Case& c) {
  spec::Optimizer o;
  o.type = c.type;
  o.momentum = c.momentum;
  o.nesterov = c.nesterov;
  o.beta2 = 0.98;
  o.eps = 1e-6;
  return o;
}

const std::vector<Case> kCases = {{"adamw", spec::OptimizerType::kAdamW, 0.01, 0.1},
                                  {"sgd", spec::OptimizerType::kSgd, 0.05, 0.01},
                                  {"sgd_momentum", spec::OptimizerType::kSgd, 0.05, 0.01, 0.9},
                                  {"sgd_nesterov", spec::OptimizerType::kSgd, 0.05, 0.01, 0.9, true},
                                  {"adagrad", spec::OptimizerType::kAdagrad, 0.05, 0.01}};
const at::Tensor kGood = at::zeros({}), kBad = at::ones({});

}  // namespace

TEST_CASE("twenty steps with two groups are those of torch.optim, also with gradients that are scaled") {
  const Reference reference;
  for (const auto& c : kCases) {
    for (const float scale : {1.0F, 1024.0F}) {
      INFO(c.name << " scale " << scale);
      const auto p = reference.tensors(reference.json["initial"]);
      const auto optimizer = make_optimizer(options_of(c), groups_of(p, c.decay));
      const auto& expected = reference.json["optimizers"][c.name];
      for (size_t step = 0; step < expected.size(); ++step) {
        const auto g = reference.tensors(reference.json["gradients"][step]);
        for (size_t i = 0; i < p.size(); ++i) p[i].mutable_grad() = g[i] * scale;
        optimizer->step(at::scalar_tensor(c.lr), at::scalar_tensor(scale), kGood);
        CHECK(reference.max_difference(p, expected[step]) < 2e-6);
      }
    }
  }
}

TEST_CASE("a step that found inf or NaN changes nothing, bit for bit, then or later") {
  const Reference reference;
  for (const auto& c : kCases) {
    INFO(c.name);
    const auto p = reference.tensors(reference.json["initial"]),
               q = reference.tensors(reference.json["initial"]);
    const auto skipping = make_optimizer(options_of(c), groups_of(p, c.decay));
    const auto plain = make_optimizer(options_of(c), groups_of(q, c.decay));
    const auto set = [&](const std::vector<at::Tensor>& parameters, size_t step) {
      const auto g = reference.tensors(reference.json["gradients"][step]);
      for (size_t i = 0; i < g.size(); ++i) parameters[i].mutable_grad() = g[i];
    };
    for (size_t step = 0; step < 4; ++step) {
      for (const auto& t : p) t.mutable_grad() = at::full_like(t, std::nan(""));
      skipping->step(at::scalar_tensor(c.lr), at::scalar_tensor(std::nan("")), kBad);
      for (size_t i = 0; i < p.size(); ++i) CHECK(p[i].equal(q[i]));
      set(p, step);
      set(q, step);
      skipping->step(at::scalar_tensor(c.lr), at::ones({}), kGood);
      plain->step(at::scalar_tensor(c.lr), at::ones({}), kGood);
      for (size_t i = 0; i < p.size(); ++i) CHECK(p[i].equal(q[i]));
    }
  }
}

TEST_CASE("a parameter without a gradient is left alone and has its own step count") {
  const Reference reference;
  const Case& adamw = kCases[0];
  const auto p = reference.tensors(reference.json["initial"]),
             q = reference.tensors(reference.json["initial"]);
  const auto late = make_optimizer(options_of(adamw), groups_of(p, 0.1));
  const auto fresh = make_optimizer(options_of(adamw), groups_of(q, 0.1));
  const auto g = reference.tensors(reference.json["gradients"][0]);
  p[0].mutable_grad() = g[0].clone();
  late->step(at::scalar_tensor(0.01), at::ones({}), kGood);
  CHECK(p[1].equal(q[1]));
  p[1].mutable_grad() = g[1].clone();
  q[1].mutable_grad() = g[1].clone();
  late->step(at::scalar_tensor(0.01), at::ones({}), kGood);
  fresh->step(at::scalar_tensor(0.01), at::ones({}), kGood);
  CHECK(p[1].equal(q[1]));
}

TEST_CASE("state is counted in bytes: two fp32 slots and a step count per parameter for AdamW") {
  const std::vector<at::Tensor> p = {at::zeros({10, 3}), at::zeros({4}), at::zeros({2}), at::zeros({1})};
  CHECK(make_optimizer(options_of(kCases[0]), groups_of(p, 0))->state_bytes() == 4 * (2 * 37 + 4));
  CHECK(make_optimizer(options_of(kCases[1]), groups_of(p, 0))->state_bytes() == 4 * 4);
}
