#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "../unit/dist/ranks.h"
#include "dist/gradient_sync.h"
#include "optim/optimizer.h"
#include "optim/step_control.h"

using namespace trainer;

TEST_CASE(
    "a NaN or inf on one rank is found by all: all skip the step, and the next one is as if it had not "
    "been") {
  std::vector<at::Tensor> weights(2);
  std::vector<std::vector<float>> found(2), rates(2);
  const auto errors = test::run_ranks(2, [&](dist::Communicator& c) {
    const auto r = static_cast<size_t>(c.rank());
    const at::Tensor p = at::ones({3}).requires_grad_();
    const auto sync = dist::make_gradient_sync(c, {}, {{"p", p}}, {});
    optim::StepControl control({}, {}, 0.1, 10, at::kCPU);
    const auto optimizer = optim::make_optimizer({}, {{"all", 0.01, {"p"}, {p}}});
    const float bad[] = {std::nanf(""), 1, INFINITY, 1};
    for (const float factor : bad) {
      sync->zero_grad();
      sync->before_forward(true);
      sync->backward(p.square().sum() * (c.rank() == 1 ? factor : 1.0F), true);
      const auto step = control.prepare(sync->gradients());
      optimizer->step(step.lr, step.grad_scale, step.found_inf);
      found[r].push_back(step.found_inf.item<float>());
      rates[r].push_back(step.lr.item<float>());
    }
    weights[r] = p.detach().clone();
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(found == std::vector<std::vector<float>>(2, {1, 0, 1, 0}));
  CHECK(rates == std::vector<std::vector<float>>(2, {0.1F, 0.1F, 0.09F, 0.09F}));
  CHECK(weights[0].equal(weights[1]));

  // The same two good steps in one process.
  const at::Tensor p = at::ones({3}).requires_grad_();
  optim::StepControl control({}, {}, 0.1, 10, at::kCPU);
  const auto optimizer = optim::make_optimizer({}, {{"all", 0.01, {"p"}, {p}}});
  for (int i = 0; i < 2; ++i) {
    p.mutable_grad().reset();
    (2 * p.square().sum()).backward();
    const auto step = control.prepare({p.grad()});
    optimizer->step(step.lr, step.grad_scale, step.found_inf);
  }
  CHECK(weights[0].equal(p.detach()));
}
