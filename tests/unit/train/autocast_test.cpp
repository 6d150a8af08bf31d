#include "train/autocast.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using trainer::spec::Precision;
using trainer::train::Autocast;

TEST_CASE("autocast holds for its scope, nested ones too, and fp32 is none") {
  const at::Tensor x = at::ones({2, 3}), w = at::ones({4, 3});
  const auto type = [&] { return at::linear(x, w).scalar_type(); };
  CHECK(type() == at::kFloat);
  {
    const Autocast outer(c10::kCPU, Precision::kBf16);
    CHECK(type() == at::kBFloat16);
    {
      const Autocast inner(c10::kCPU, Precision::kFp16);
      CHECK(type() == at::kHalf);
    }
    CHECK(type() == at::kBFloat16);
  }
  CHECK(type() == at::kFloat);
  const Autocast none(c10::kCPU, Precision::kFp32);
  CHECK(type() == at::kFloat);
}

TEST_CASE("cast weights do not outlive the scope: a changed weight counts in the next one") {
  at::Tensor weight = at::ones({1, 8}).requires_grad_();
  const at::Tensor x = at::ones({1, 8});
  const auto sum = [&] {
    const Autocast autocast(c10::kCPU, Precision::kBf16);
    return at::linear(x, weight).item<double>();
  };
  CHECK(sum() == 8);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(2);
  }
  CHECK(sum() == 16);
}
