#include <torch/torch.h>

#include <catch2/catch.hpp>

#include "kernels/composed.h"
#include "kernels/ops.h"
#include "ops_check.h"

// The binary runs once for every instruction set (TRAINER_CPU_ISA).

using namespace trainer;
using namespace trainer::ops_check;

TEST_CASE("The dot interaction of two vectors is the first one and their dot product") {
  const Tensor first = at::tensor({1.0F, 2.0F, 3.0F}).view({1, 3}),
               x = at::tensor({4.0F, 5.0F, 6.0F}).view({1, 3});
  CHECK(at::equal(kernels::dot_interaction(first, x, 3, at::kFloat),
                  at::tensor({1.0F, 2.0F, 3.0F, 32.0F}).view({1, 4})));
  CHECK(at::equal(kernels::composed::dot_interaction(first, x, 3, at::kFloat),
                  at::tensor({1.0F, 2.0F, 3.0F, 32.0F}).view({1, 4})));
}

TEST_CASE("The dot interaction has the pairs below the diagonal row by row, as DLRM's reference") {
  // Vectors 2^i: the product of i and j is 2^(i + j).
  const Tensor x = at::tensor({1.0F, 2.0F, 4.0F, 8.0F}).view({1, 4});
  const Tensor expected = at::tensor({2.0F, 4.0F, 8.0F, 8.0F, 16.0F, 32.0F}).view({1, 6});
  CHECK(at::equal(kernels::dot_interaction({}, x, 1, at::kFloat), expected));
  CHECK(at::equal(kernels::composed::dot_interaction({}, x, 1, at::kFloat), expected));
}

TEST_CASE("The fused dot interaction equals the composition in fp64, forward and backward") {
  torch::manual_seed(3);
  for (const auto& [batch, features, dim] :
       {std::array{70, 26, 16}, {33, 26, 64}, {5, 40, 10}, {3, 1, 7}, {2, 70, 33}, {1, 12, 1}, {0, 5, 8}}) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(batch, features, dim, bf16);
      const auto with_first = [&, dim = dim](auto op, at::ScalarType dtype) {
        return [=](const std::vector<Tensor>& v) { return std::vector{op(v[0], v[1], dim, dtype)}; };
      };
      const auto without = [&, dim = dim](auto op, at::ScalarType dtype) {
        return [=](const std::vector<Tensor>& v) { return std::vector{op(Tensor(), v[0], dim, dtype)}; };
      };
      const at::ScalarType dtype = bf16 ? at::kBFloat16 : at::kFloat;
      const Tensor first = random({batch, dim}, false), x = random({batch, features * dim}, false);
      check(with_first(kernels::dot_interaction, dtype),
            with_first(kernels::composed::dot_interaction, at::kDouble), {first, x}, bf16);
      check(without(kernels::dot_interaction, dtype),
            without(kernels::composed::dot_interaction, at::kDouble), {x}, bf16);
    }
  }
}

TEST_CASE("The dot interaction of a record does not depend on its batch") {
  torch::manual_seed(4);
  const Tensor first = torch::randn({100, 16}), x = torch::randn({100, 26 * 16});
  const Tensor whole = kernels::dot_interaction(first, x, 16, at::kFloat);
  CHECK(at::equal(whole.slice(0, 37, 39),
                  kernels::dot_interaction(first.slice(0, 37, 39), x.slice(0, 37, 39), 16, at::kFloat)));
}
