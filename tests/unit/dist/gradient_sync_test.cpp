#include "dist/gradient_sync.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>

#include "ranks.h"

using namespace trainer;
using test::run_ranks;
using Errors = std::vector<std::string>;

namespace {

// Two layers and a branch that only some samples take. Integers, so that sums are exact in any order.
struct Model {
  at::Tensor w = at::arange(12, at::kFloat).reshape({4, 3}).remainder(5).requires_grad_();
  at::Tensor v = at::arange(8, at::kFloat).reshape({2, 4}).remainder(3).requires_grad_();
  at::Tensor branch = at::ones({3}).requires_grad_();
  at::Tensor unused = at::ones({2}).requires_grad_();
  bool has_unused;
  explicit Model(bool with_unused = false) : has_unused(with_unused) {}

  std::vector<std::pair<std::string, at::Tensor>> parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> p = {{"w", w}, {"v", v}, {"branch", branch}};
    if (has_unused) p.emplace_back("unused", unused);
    return p;
  }
  // x: [N, 3], N may be 0.
  at::Tensor loss(const at::Tensor& x, bool take_branch = true) const {
    const at::Tensor y = at::matmul(at::matmul(x, w.t()), v.t()).sum();
    return take_branch ? y + (x * branch).sum() : y;
  }
};

const at::Tensor kSamples = at::arange(21, at::kFloat).reshape({7, 3}).remainder(7);

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& t : tensors) result.push_back(t.defined() ? t.clone() : t);
  return result;
}

std::vector<at::Tensor> reference(bool take_branch = true) {
  const Model m;
  m.loss(kSamples, take_branch).backward();
  if (!take_branch) m.branch.mutable_grad() = at::zeros({3});
  return {m.w.grad(), m.v.grad(), m.branch.grad()};
}

}  // namespace

TEST_CASE("who waits for the other ranks' gradients is told, once in each backward that reduces") {
  std::vector<std::vector<int>> calls(2);
  const auto errors = run_ranks(2, [&](dist::Communicator& c) {
    const Model m;
    spec::Parallel options;
    options.bucket_cap_mb = 3e-5;  // a bucket per parameter
    int count = 0;
    const auto sync = dist::make_gradient_sync(c, options, m.parameters(), {}, [&] { ++count; });
    for (const bool last : {false, true, true, false, true}) {
      sync->before_forward(last);
      sync->backward(m.loss(kSamples), last);
      calls[static_cast<size_t>(c.rank())].push_back(count);
      if (last) sync->zero_grad();
    }
  });
  CHECK(errors == Errors(2));
  for (const auto& counts : calls) CHECK(counts == std::vector<int>{0, 1, 2, 2, 3});
}

TEST_CASE(
    "the sum of 1, 2, 3 and 9 ranks' gradients is the gradient of the whole batch, shards empty or not") {
  const auto expected = reference();
  for (const int64_t size : {1, 2, 3, 9}) {
    for (const bool static_graph : {false, true}) {
      INFO(size << " ranks, static " << static_graph);
      std::map<int64_t, std::vector<std::vector<at::Tensor>>> got;
      for (int64_t r = 0; r < size; ++r) got[r];
      const auto errors = run_ranks(size, [&](dist::Communicator& c) {
        Model m;
        spec::Parallel options;
        options.static_graph = static_graph;
        options.bucket_cap_mb = 3e-5;  // a bucket per parameter
        const auto sync = dist::make_gradient_sync(c, options, m.parameters(), {});
        const int64_t begin = 7 * c.rank() / size, end = 7 * (c.rank() + 1) / size;
        for (int step = 0; step < 3; ++step) {  // the buckets are rebuilt after the first
          sync->before_forward(true);
          sync->backward(m.loss(kSamples.slice(0, begin, end)), true);
          got.at(c.rank()).push_back(clones(sync->gradients()));
          sync->zero_grad();
        }
      });
      CHECK(errors == Errors(static_cast<size_t>(size)));
      for (const auto& [rank, steps] : got) {
        REQUIRE(steps.size() == 3);
        for (const auto& g : steps) {
          for (size_t i = 0; i < 3; ++i) CHECK(g[i].equal(expected[i]));
        }
      }
    }
  }
}

TEST_CASE(
    "accumulated micro-batches are reduced once, whole, also for a parameter that only the first one used") {
  const Model whole;
  (whole.loss(kSamples.slice(0, 0, 3), true) + whole.loss(kSamples.slice(0, 3), false)).backward();
  std::vector<std::vector<at::Tensor>> got(2);
  const auto errors = run_ranks(2, [&](dist::Communicator& c) {
    Model m;
    spec::Parallel options;
    options.find_unused_parameters = true;
    const auto sync = dist::make_gradient_sync(c, options, m.parameters(), {});
    for (int step = 0; step < 2; ++step) {
      sync->zero_grad();
      const at::Tensor mine = c.rank() == 0 ? kSamples : kSamples.slice(0, 0, 0);
      sync->before_forward(false);
      sync->backward(m.loss(mine.slice(0, 0, 3), true), false);
      sync->before_forward(true);
      sync->backward(m.loss(mine.slice(0, 3), false), true);
      got[static_cast<size_t>(c.rank())] = clones(sync->gradients());
    }
  });
  CHECK(errors == Errors(2));
  for (const auto& g : got) {
    REQUIRE(g.size() == 3);
    CHECK(g[0].equal(whole.w.grad()));
    CHECK(g[1].equal(whole.v.grad()));
    CHECK(g[2].equal(whole.branch.grad()));
  }
}

TEST_CASE("a parameter may be used on one rank, or on none") {
  std::vector<std::vector<at::Tensor>> got(2);
  const auto errors = run_ranks(2, [&](dist::Communicator& c) {
    Model m(true);
    spec::Parallel options;
    options.find_unused_parameters = true;
    const auto sync = dist::make_gradient_sync(c, options, m.parameters(), {});
    for (int step = 0; step < 3; ++step) {
      sync->zero_grad();
      sync->before_forward(true);
      sync->backward(m.loss(kSamples, c.rank() == 1 && step != 2), true);
      if (step == 1) got[static_cast<size_t>(c.rank())] = clones(sync->gradients());
      if (step == 2) got[static_cast<size_t>(c.rank())].push_back(sync->gradients()[2].clone());
    }
  });
  CHECK(errors == Errors(2));
  for (const auto& g : got) {
    REQUIRE(g.size() == 5);
    CHECK(g[0].equal(2 * reference()[0]));
    CHECK(g[2].equal(reference()[2]));
    CHECK_FALSE(g[3].defined());
    CHECK(g[4].equal(at::zeros({3})));  // took part before, not in this step
  }
}

TEST_CASE("an unused parameter is an error that names it, unless it is allowed") {
  const auto errors = run_ranks(2, [&](dist::Communicator& c) {
    Model m(true);
    const auto sync = dist::make_gradient_sync(c, {}, m.parameters(), {});
    sync->before_forward(true);
    sync->backward(m.loss(kSamples), true);
  });
  for (size_t r = 0; r < 2; ++r) {
    CHECK(
        errors[r] ==
        "rank " + std::to_string(r) +
            " of 2: parameters took no part in the loss, so their gradients were never reduced: unused; set "
            "parallel.find_unused_parameters: true, or freeze them");
  }
}

TEST_CASE("compressed gradients are the sum to the precision of fp16 and bf16") {
  using spec::GradientCompression;
  for (const auto& [compression, tolerance] :
       {std::pair{GradientCompression::kFp16, 6e-3}, {GradientCompression::kBf16, 5e-2}}) {
    std::vector<at::Tensor> got(3);
    const at::Tensor x = at::linspace(-1, 3, 3 * 64).reshape({3, 64});
    const auto errors = run_ranks(3, [&, c = compression](dist::Communicator& communicator) {
      const at::Tensor p = at::ones({64}).requires_grad_();
      spec::Parallel options;
      options.gradient_compression = c;
      const auto sync = dist::make_gradient_sync(communicator, options, {{"p", p}}, {});
      for (int step = 0; step < 2; ++step) {
        sync->zero_grad();
        sync->before_forward(true);
        sync->backward((p * x[communicator.rank()]).sum(), true);
      }
      got[static_cast<size_t>(communicator.rank())] = sync->gradients()[0].clone();
    });
    CHECK(errors == Errors(3));
    for (const auto& g : got) {
      CHECK(g.scalar_type() == at::kFloat);
      CHECK((g - x.sum(0)).abs().max().item<double>() < tolerance);
      CHECK(g.equal(got[0]));
    }
  }
}

TEST_CASE("parameters and buffers start as rank 0's") {
  std::vector<at::Tensor> parameters(2), buffers(2);
  const auto errors = run_ranks(2, [&](dist::Communicator& c) {
    const auto r = static_cast<size_t>(c.rank());
    parameters[r] = at::full({5}, static_cast<double>(c.rank())).requires_grad_();
    buffers[r] = at::full({2}, c.rank(), at::kLong);
    dist::make_gradient_sync(c, {}, {{"p", parameters[r]}}, {buffers[r]});
  });
  CHECK(errors == Errors(2));
  CHECK(parameters[1].equal(at::zeros({5})));
  CHECK(buffers[1].equal(at::zeros({2}, at::kLong)));
}

TEST_CASE("ranks with different models are told the first difference") {
  const auto errors_with =
      [](const std::function<std::vector<std::pair<std::string, at::Tensor>>(int64_t)>& model) {
        return run_ranks(
            3, [&](dist::Communicator& c) { dist::make_gradient_sync(c, {}, model(c.rank()), {}); });
      };
  const std::string tail = "; every node needs the same job file and model files";
  const at::Tensor a = at::ones({2});
  const auto shape = errors_with([&](int64_t r) {
    return std::vector<std::pair<std::string, at::Tensor>>{{"a", a}, {"b", at::ones({3, r == 1 ? 5 : 4})}};
  });
  CHECK(shape ==
        Errors(3,
               "the ranks hold different models: 'parameter b float [3, 4]' on rank 0, 'parameter b float "
               "[3, 5]' on rank 1" +
                   tail));
  const auto missing = errors_with([&](int64_t r) {
    std::vector<std::pair<std::string, at::Tensor>> p = {{"a", a}, {"b", a}};
    if (r == 2) p.pop_back();
    return p;
  });
  CHECK(missing ==
        Errors(3,
               "the ranks hold different models: 'parameter b float [2]' on rank 0, 'nothing more' on "
               "rank 2" +
                   tail));
}
