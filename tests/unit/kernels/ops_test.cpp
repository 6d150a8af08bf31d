#include "kernels/ops.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <numeric>

using namespace trainer;

static std::vector<int32_t> seqlens_of_test() {
  return {1, 7, 33, 16, 53};
}
static int64_t sum(const std::vector<int32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}
static at::Tensor cu_seqlens_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return at::tensor(starts, at::kInt);
}

TEST_CASE("Attention without dropout equals scaled_dot_product_attention of each sequence") {
  torch::manual_seed(1);
  const auto seqlens = seqlens_of_test();
  const int64_t heads = 3, dim = 16, tokens = sum(seqlens);
  const at::Tensor qkv = torch::randn({tokens, 3 * heads * dim});
  const at::Tensor y = kernels::varlen_attention(qkv, cu_seqlens_of(seqlens), seqlens, heads, {});
  REQUIRE(y.sizes() == at::IntArrayRef({tokens, heads * dim}));
  int64_t start = 0;
  for (const int64_t length : seqlens) {
    const auto parts =
        qkv.narrow(0, start, length).view({length, 3, heads, dim}).permute({1, 2, 0, 3}).unbind(0);
    const at::Tensor expected = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    CHECK(torch::allclose(y.narrow(0, start, length).view({length, heads, dim}).transpose(0, 1), expected,
                          1e-5, 1e-6));
    start += length;
  }
}
