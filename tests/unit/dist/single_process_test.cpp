#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "dist/communicator.h"
#include "dist/gradient_sync.h"

using namespace trainer::dist;

TEST_CASE("one process: every collective is the identity") {
  const auto c = make_single_process();
  CHECK(c->rank() == 0);
  CHECK(c->size() == 1);
  CHECK(c->process_group() == nullptr);
  const at::Tensor t = at::arange(6).reshape({3, 2});
  c->all_reduce_sum(t);
  c->broadcast({t}, 0);
  c->barrier();
  CHECK(t.equal(at::arange(6).reshape({3, 2})));
  CHECK(c->all_gather_rows(t).equal(t));
  const at::Tensor received = at::empty({3, 2}, at::kLong);
  c->channel("rows")->all_to_all_rows(received, t, {3}, {3}, "rows")->wait();
  CHECK(received.equal(t));
  CHECK_FALSE(c->first_proposal("step", std::nullopt));
  CHECK(c->first_proposal("step", 7) == 7);
  CHECK(c->first_proposal("step", 8) == 7);
  CHECK(c->first_proposal("step", std::nullopt) == 7);
}

TEST_CASE(
    "one process: gradients accumulate over micro-batches, and a parameter left out has zeros, not nothing") {
  const auto c = make_single_process();
  const at::Tensor a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_(),
                   never = at::ones({2}).requires_grad_();
  const auto sync = make_gradient_sync(*c, {}, {{"a", a}, {"b", b}, {"never", never}}, {});
  for (const bool last : {false, true}) {
    sync->before_forward(last);
    sync->backward((a * 3 + b).sum(), last);
  }
  CHECK(sync->gradients()[0].equal(at::full({2}, 6.0F)));
  CHECK(sync->gradients()[1].equal(at::full({2}, 2.0F)));
  CHECK_FALSE(sync->gradients()[2].defined());
  sync->zero_grad();
  sync->before_forward(true);
  sync->backward(a.sum(), true);
  CHECK(sync->gradients()[0].equal(at::ones({2})));
  CHECK(sync->gradients()[1].equal(at::zeros({2})));
  CHECK_FALSE(sync->gradients()[2].defined());
}
