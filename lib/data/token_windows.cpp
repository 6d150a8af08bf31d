#include "data/token_windows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/math.h"
#include "core/mix64.h"
#include "data/hash.h"

namespace trainer::data {
namespace {

constexpr int64_t kNoTarget = -100;  // the loss leaves it out

}  // namespace

TokenWindows::TokenWindows(std::shared_ptr<const tokens::TokenStream> stream, const WindowOptions& options)
    : stream_(std::move(stream)), options_(options) {
  if (options_.end < 0) options_.end = stream_->size();
  const int64_t length = options_.length;
  if (num_tokens() <= length) {
    fail<DataError>(
        "{}: {} tokens, expected at least {} (data.max_length and one more)\nhint: lower data.max_length",
        stream_->parts().front().name, num_tokens(), length + 1);
  }
  size_ = options_.windows == spec::Windows::kRandom ? (num_tokens() - 1) / length
                                                     : ceil_div(num_tokens() - 1, length);
}

TokenWindows::Window TokenWindows::window(int64_t sample, uint64_t seed, int64_t epoch) const {
  const int64_t length = options_.length;
  if (options_.windows == spec::Windows::kRandom) {
    const auto places = static_cast<uint64_t>(num_tokens() - length);
    return {options_.begin + static_cast<int64_t>(sample_key(seed, epoch, sample) % places), length};
  }
  const int64_t begin = options_.begin + sample * length;
  return {begin, std::min(length, options_.end - 1 - begin)};
}

void TokenWindows::cuts(const Window& window, std::vector<int64_t>& cuts) const {
  cuts.clear();
  if (options_.documents == spec::Documents::kJoined) return;
  stream_->document_starts(window.begin + 1, window.begin + window.length + 1, cuts);
  for (int64_t& cut : cuts) cut -= window.begin;
}

int64_t TokenWindows::cost(int64_t sample) const {
  return options_.windows == spec::Windows::kRandom ? options_.length : window(sample, 0, 0).length;
}

std::vector<int32_t> TokenWindows::lengths(int64_t /*num_threads*/) const {
  std::vector<int32_t> lengths(static_cast<size_t>(size_), static_cast<int32_t>(options_.length));
  lengths.back() = static_cast<int32_t>(cost(size_ - 1));
  return lengths;
}

int64_t TokenWindows::targets(int64_t sample, uint64_t seed, int64_t epoch) const {
  const Window at = window(sample, seed, epoch);
  if (options_.documents == spec::Documents::kJoined) return at.length;
  std::vector<int64_t> starts;
  cuts(at, starts);
  return at.length - static_cast<int64_t>(starts.size());
}

Batch TokenWindows::batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                          bool pinned) const {
  Batch batch;
  batch.samples = samples;
  int64_t n = 0;
  for (const int64_t sample : samples) n += cost(sample);
  const auto options = at::TensorOptions().pinned_memory(pinned);
  const at::Tensor tensors = at::empty({4, n}, options.dtype(at::kLong));
  batch.input_ids = tensors[0];
  batch.position_ids = tensors[1];
  batch.row_keys = tensors[2];
  batch.labels = tensors[3];
  auto* ids = tensors.mutable_data_ptr<int64_t>();
  Rows rows{ids, ids + n, ids + 2 * n, ids + 3 * n};
  for (const int64_t sample : samples) {
    const Window at = window(sample, seed, epoch);
    fill(at, sample_key(seed, epoch, sample), rows, batch.seqlens);
    rows = {rows.ids + at.length, rows.positions + at.length, rows.keys + at.length, rows.labels + at.length};
  }
  batch.cu_seqlens = at::zeros({static_cast<int64_t>(batch.seqlens.size()) + 1}, options.dtype(at::kInt));
  std::partial_sum(batch.seqlens.begin(), batch.seqlens.end(),
                   batch.cu_seqlens.mutable_data_ptr<int32_t>() + 1);
  return batch;
}

void TokenWindows::fill(const Window& window, uint64_t key, const Rows& rows,
                        std::vector<int32_t>& seqlens) const {
  const int64_t length = window.length;
  std::vector<int64_t> ids(static_cast<size_t>(length) + 1);
  stream_->read(window.begin, length + 1, ids.data());
  uint64_t largest = 0;  // a negative id is large
  for (const int64_t id : ids) largest = std::max(largest, static_cast<uint64_t>(id));
  if (largest >= static_cast<uint64_t>(options_.vocab_size)) {
    const auto bad = std::find(ids.begin(), ids.end(), static_cast<int64_t>(largest));
    fail<DataError>("{}: got id {}; expected 0 to {}, the vocabulary",
                    stream_->where(window.begin + (bad - ids.begin())), *bad, options_.vocab_size - 1);
  }
  std::copy_n(ids.begin(), length, rows.ids);
  std::copy_n(ids.begin() + 1, length, rows.labels);
  for (int64_t t = 0; t < length; ++t)
    rows.keys[t] = static_cast<int64_t>(mix64(key + static_cast<uint64_t>(t)));

  std::vector<int64_t> ends;
  cuts(window, ends);
  for (const int64_t end : ends) rows.labels[end - 1] = kNoTarget;
  if (ends.empty() || ends.back() < length) ends.push_back(length);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    std::iota(rows.positions + begin, rows.positions + end, int64_t{0});
    seqlens.push_back(static_cast<int32_t>(end - begin));
    begin = end;
  }
}

std::string TokenWindows::where(int64_t sample) const {
  return options_.windows == spec::Windows::kRandom
             ? fmt::format("{}: sample {}", stream_->parts().front().name, sample)
             : stream_->where(window(sample, 0, 0).begin);
}

uint64_t TokenWindows::fingerprint() const {
  return mix64(stream_->fingerprint() ^ mix64(static_cast<uint64_t>(options_.begin)) ^
               static_cast<uint64_t>(options_.end));
}

}  // namespace trainer::data
