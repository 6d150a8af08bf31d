#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "spec/job_spec.h"
#include "tokens/token_stream.h"

namespace trainer::data {

struct WindowOptions {
  int64_t length = 1024;   // inputs of a window, data.max_length
  int64_t vocab_size = 0;  // ids must be less
  spec::Windows windows = spec::Windows::kEpoch;
  spec::Documents documents = spec::Documents::kJoined;
  int64_t begin = 0, end = -1;  // part of the stream; -1: its end
};

// Next-token samples: windows of `length` inputs over a stream of tokens, each followed by one more token, the last
// target.
//
// Windows "epoch": consecutive ones, the last may be shorter, so that in an epoch every token but the first is a
// target once. "random": sample s of an epoch begins anywhere, by a hash of (seed, epoch, s); an epoch has as many
// as would fit side by side.
//
// Documents "joined": a window is one sequence. "separate": it is cut into a sequence for each document that it
// touches, positions begin anew, and the last token of a document has no target.
class TokenWindows final : public Dataset {
 public:
  // With documents separate the stream must have them. Throws DataError when there are not length + 1 tokens.
  TokenWindows(std::shared_ptr<const tokens::TokenStream> stream, const WindowOptions& options);

  int64_t size() const override { return size_; }
  int64_t cost(int64_t sample) const override;
  std::vector<int32_t> lengths(int64_t num_threads) const override;
  int64_t targets(int64_t sample, uint64_t seed, int64_t epoch) const override;
  // labels [N] int64: the next token of each, -100 where there is no target. No token_type_ids. Throws DataError
  // that names the place of an id beyond the vocabulary.
  Batch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, bool pinned) const override;
  std::string where(int64_t sample) const override;
  uint64_t fingerprint() const override;

  const tokens::TokenStream& stream() const { return *stream_; }
  int64_t num_tokens() const { return options_.end - options_.begin; }

 private:
  struct Window {
    int64_t begin;   // first input
    int64_t length;  // inputs
  };
  Window window(int64_t sample, uint64_t seed, int64_t epoch) const;
  // Positions in the window, from 1 to its length, where another document begins: the input before has no target.
  void cuts(const Window& window, std::vector<int64_t>& cuts) const;
  struct Rows {
    int64_t *ids, *positions, *keys, *labels;  // of a window
  };
  // `key`: of the sample. Adds the lengths of its sequences.
  void fill(const Window& window, uint64_t key, const Rows& rows, std::vector<int32_t>& seqlens) const;

  std::shared_ptr<const tokens::TokenStream> stream_;
  WindowOptions options_;
  int64_t size_;
};

}  // namespace trainer::data
