#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.h"

namespace trainer::data {

// Samples by number, packed into batches. Const is thread-safe: a loader's threads share one dataset.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // What a sample costs, in anything proportional to its tokens: shards of a step get even shares. Cheap.
  virtual int64_t cost(int64_t sample) const = 0;
  // Tokens of every sample, for batches by token budget. May take its time, on `num_threads` threads.
  virtual std::vector<int32_t> lengths(int64_t num_threads) const = 0;
  // Values of a sample in the loss; the loss's denominator is their sum over the global batch. Cheap.
  virtual int64_t targets(int64_t sample, uint64_t seed, int64_t epoch) const = 0;
  // Packs samples, on the CPU: a function of the arguments alone. `pinned`: in page-locked memory, which needs
  // CUDA. Throws DataError.
  virtual Batch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                      bool pinned) const = 0;
  // Where a sample is, for messages: file and place.
  virtual std::string where(int64_t sample) const = 0;
  // Hash of the data: a resumed run must see the same.
  virtual uint64_t fingerprint() const = 0;
};

}  // namespace trainer::data
