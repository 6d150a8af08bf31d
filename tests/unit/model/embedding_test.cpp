#include "model/embedding.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>

namespace trainer::model {

TEST_CASE("an embedding's rows and gradients are at::embedding's, first and accumulated, padding left out") {
  const at::Tensor ours = at::randn({10, 6}).requires_grad_(),
                   theirs = ours.detach().clone().requires_grad_();
  const at::Tensor ids = at::tensor({3, 0, 9, 3, 1, 3}, at::kLong);
  const at::Tensor factor = at::randn({6, 6});
  for (const int64_t padding_id : {-1, 0, 3}) {
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const at::Tensor out = word_embedding(ours, ids, padding_id);
      const at::Tensor expected = at::embedding(theirs, ids, padding_id);
      CHECK(at::equal(out, expected));
      (out * factor).sum().backward();
      (expected * factor).sum().backward();
      CHECK(at::allclose(ours.grad(), theirs.grad(), 1e-6, 1e-6));
    }
  }
}

TEST_CASE("an embedding's gradient is added in place, and the weight's hooks run") {
  const at::Tensor weight = at::randn({10, 6}).requires_grad_();
  weight.mutable_grad() = at::zeros_like(weight);
  const void* const storage = weight.grad().data_ptr();
  int num_calls = 0;
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  struct Count : torch::autograd::FunctionPostHook {
    explicit Count(int& n) : n_(n) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++n_;
      return outputs;
    }
    int& n_;
  };
  accumulator->add_post_hook(std::make_unique<Count>(num_calls));  // as c10d's Reducer does
  word_embedding(weight, at::tensor({2, 2}, at::kLong), -1).sum().backward();
  CHECK(num_calls == 1);
  CHECK(weight.grad().data_ptr() == storage);
  CHECK(weight.grad()[2][0].item<float>() == 2);
  CHECK(weight.grad().sum().item<float>() == 12);
}

}  // namespace trainer::model
