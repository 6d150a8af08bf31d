#include "kernels/cpu_memory.h"

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <thread>

namespace trainer::kernels {
namespace {

at::Tensor megabytes(int64_t n) {
  return at::ones({n << 18});
}

}  // namespace

TEST_CASE("large tensors come from a cache that holds little more than was in use at once") {
  const at::Tensor before = megabytes(2);  // freed as it was made
  cache_cpu_memory();
  cache_cpu_memory();
  const CpuMemory start = cpu_memory();
  void* first = nullptr;
  {
    const at::Tensor a = megabytes(24), b = megabytes(8);
    first = a.data_ptr();
    CHECK(cpu_memory().in_use_bytes == start.in_use_bytes + (32 << 20));
    CHECK(a.sum().item<float>() == 24 << 18);
  }
  CHECK(cpu_memory().in_use_bytes == start.in_use_bytes);
  CHECK(cpu_memory().cached_bytes >= 32 << 20);
  {
    const at::Tensor again = megabytes(24);
    CHECK(again.data_ptr() == first);
    const at::Tensor small = at::ones({100});  // not of the cache
    CHECK(cpu_memory().in_use_bytes == start.in_use_bytes + (24 << 20));
  }
  // Ragged sizes, freed on another thread too: what is held stays within its bound.
  for (int64_t n = 2; n < 40; ++n) {
    at::Tensor a = megabytes(n), b = megabytes(41 - n);
    CHECK(a.sum().item<float>() + b.sum().item<float>() == 41 << 18);
    std::thread([moved = std::move(a)]() mutable { moved = at::Tensor(); }).join();
    const CpuMemory now = cpu_memory();
    CHECK(now.in_use_bytes + now.cached_bytes <= now.most_in_use_bytes / 16 * 17 + 16);
  }
  CHECK(cpu_memory().in_use_bytes == start.in_use_bytes);
}

TEST_CASE("memory of plain pointers, large and small, goes back where it is from") {
  c10::Allocator* const before = c10::GetDefaultCPUAllocator();
  void* const old = before->raw_allocate(2 << 20);
  cache_cpu_memory();
  c10::Allocator* const cache = c10::GetCPUAllocator();
  const CpuMemory start = cpu_memory();
  void *const large = cache->raw_allocate(3 << 20), *const small = cache->raw_allocate(100);
  CHECK(cpu_memory().in_use_bytes == start.in_use_bytes + (3 << 20));
  for (void* memory : {large, small, old}) cache->raw_deallocate(memory);
  CHECK(cpu_memory().in_use_bytes == start.in_use_bytes);
  // oneDNN's product.
  const at::Tensor a = at::ones({512, 1024}, at::kBFloat16);
  CHECK(at::mm(a, a.t())[3][5].item<float>() == 1024);
}

TEST_CASE("more memory than there is fails with LibTorch's message") {
  cache_cpu_memory();
  const CpuMemory start = cpu_memory();
  CHECK_THROWS_WITH(at::empty({int64_t{1} << 50}), Catch::Matchers::Contains("DefaultCPUAllocator: "));
  CHECK(cpu_memory().in_use_bytes == start.in_use_bytes);
}

}  // namespace trainer::kernels
