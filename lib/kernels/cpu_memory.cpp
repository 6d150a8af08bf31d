#include "kernels/cpu_memory.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace trainer::kernels {
namespace {

constexpr size_t kLargeBytes = size_t{1} << 20, kHugePageBytes = size_t{2} << 20;

// Sixteen sizes between powers of two, so that ragged batches find blocks; a tail that is not touched costs
// nothing.
size_t rounded(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 16;
  return (bytes + step - 1) / step * step;
}

class Allocator : public c10::Allocator {
 public:
  // Never destroyed: tensors may outlive statics.
  static Allocator& get() {
    static auto* const allocator = new Allocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLargeBytes) return small_.allocate(bytes);
    void* const block = take(rounded(bytes));
    if (block == nullptr) return small_.allocate(bytes);  // its error says how many bytes were wanted
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::kCPU)};
  }
  // oneDNN allocates and frees by plain pointers.
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  CpuMemory memory() const {
    const std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(in_use_), static_cast<int64_t>(most_in_use_), static_cast<int64_t>(cached_)};
  }

 private:
  struct Cached {
    void* block;
    uint64_t freed;  // order of frees
  };

  static void free_block(void* block) {
    c10::profiledCPUMemoryReporter().Delete(block);
    get().give_back(block);
  }

  // A block, or what the default allocator made, then or before.
  static void free_any(void* memory) {
    if (get().is_block(memory)) {
      free_block(memory);
    } else {
      get().small_.raw_deleter()(memory);
    }
  }
  bool is_block(void* memory) const {
    const std::lock_guard lock(mutex_);
    return sizes_.contains(memory);
  }

  // Null: the system has no more.
  void* take(size_t size) {
    const std::lock_guard lock(mutex_);
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    void* block = nullptr;
    if (const auto found = free_.find(size); found != free_.end()) {
      block = found->second.back().block;  // the last freed: it may be in a CPU's cache
      found->second.pop_back();
      if (found->second.empty()) free_.erase(found);
      cached_ -= size;
    } else {
      shrink(limit());
      block = map(size);
      if (block == nullptr) {
        shrink(0);
        block = map(size);
      }
    }
    if (block == nullptr) {
      in_use_ -= size;
    } else {
      sizes_[block] = size;
    }
    return block;
  }

  void give_back(void* block) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(block);
    const size_t size = found->second;
    sizes_.erase(found);
    in_use_ -= size;
    cached_ += size;
    free_[size].push_back({block, ++frees_});
    shrink(limit());
  }

  // job/estimate.cpp foresees it.
  size_t limit() const { return most_in_use_ + most_in_use_ / 16; }

  // Unmaps what was freed first until no more than `most` bytes are held, or nothing is cached.
  void shrink(size_t most) {
    while (cached_ > 0 && in_use_ + cached_ > most) {
      const auto oldest = std::min_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) {
        return a.second.front().freed < b.second.front().freed;
      });
      ::munmap(oldest->second.front().block, oldest->first);
      cached_ -= oldest->first;
      oldest->second.pop_front();
      if (oldest->second.empty()) free_.erase(oldest);
    }
  }

  static void* map(size_t size) {
    void* const block = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    if (size >= 2 * kHugePageBytes) ::madvise(block, size, MADV_HUGEPAGE);  // may be refused: only slower
    return block;
  }

  c10::Allocator& small_ = *c10::GetDefaultCPUAllocator();
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;    // in use
  std::map<size_t, std::deque<Cached>> free_;  // by size, in the order of frees; none is empty
  size_t in_use_ = 0, most_in_use_ = 0, cached_ = 0;
  uint64_t frees_ = 0;
};

}  // namespace

void cache_cpu_memory() {
  c10::SetCPUAllocator(&Allocator::get());
}

CpuMemory cpu_memory() {
  return Allocator::get().memory();
}

}  // namespace trainer::kernels
