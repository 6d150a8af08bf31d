#include "data/token_windows.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>

#include "../tokens/token_part.h"
#include "core/error.h"
#include "core/mix64.h"
#include "data/hash.h"
#include "data/loader.h"

using namespace trainer::data;
using trainer::mix64;
using trainer::spec::Documents;
using trainer::spec::Windows;
using trainer::tokens::TokenPart;
using trainer::tokens::TokenStream;

namespace {

// Token i is 1000 + i, in two parts; documents begin at `starts`.
std::shared_ptr<const TokenStream> counting(int64_t n, std::vector<int64_t> starts = {0}) {
  const int64_t cut = n / 3;
  std::vector<int32_t> first(static_cast<size_t>(cut)), second(static_cast<size_t>(n - cut));
  std::iota(first.begin(), first.end(), 1000);
  std::iota(second.begin(), second.end(), static_cast<int32_t>(1000 + cut));
  std::vector<int64_t> of_first, of_second;
  for (const int64_t start : starts) {
    if (start < cut) {
      of_first.push_back(start);
    } else {
      of_second.push_back(start - cut);
    }
  }
  std::vector<TokenPart> parts;
  parts.push_back(token_part("a.bin", first, of_first));
  parts.push_back(token_part("b.bin", second, of_second));
  return std::make_shared<const TokenStream>(std::move(parts));
}

WindowOptions windows_of(int64_t length) {
  WindowOptions options;
  options.length = length;
  options.vocab_size = 2000;
  return options;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

std::vector<int64_t> all_of(const Dataset& dataset) {
  std::vector<int64_t> samples(static_cast<size_t>(dataset.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

}  // namespace

TEST_CASE("consecutive windows make every token but the first a target once, after the token before it") {
  for (const int64_t n : {9, 10, 11, 12, 13, 64, 65}) {
    const TokenWindows windows(counting(n), windows_of(4));
    const Batch batch = windows.batch(all_of(windows), 1, 0, false);
    std::vector<int64_t> inputs(static_cast<size_t>(n - 1)), targets(static_cast<size_t>(n - 1));
    std::iota(inputs.begin(), inputs.end(), 1000);
    std::iota(targets.begin(), targets.end(), 1001);
    CHECK(values(batch.input_ids) == inputs);
    CHECK(values(batch.labels) == targets);
    int64_t sum = 0;
    for (const int64_t sample : all_of(windows)) sum += windows.targets(sample, 1, 0);
    CHECK(sum == n - 1);
  }
}

TEST_CASE("a batch of windows is packed") {
  const TokenWindows windows(counting(12), windows_of(4));
  REQUIRE(windows.size() == 3);
  const Batch batch = windows.batch({2, 0}, 7, 3, false);  // the last window is shorter
  CHECK(values(batch.input_ids) == std::vector<int64_t>{1008, 1009, 1010, 1000, 1001, 1002, 1003});
  CHECK(values(batch.position_ids) == std::vector<int64_t>{0, 1, 2, 0, 1, 2, 3});
  CHECK(batch.seqlens == std::vector<int32_t>{3, 4});
  CHECK(at::equal(batch.cu_seqlens, at::tensor({0, 3, 7}, at::kInt)));
  CHECK(batch.samples == std::vector<int64_t>{2, 0});
  CHECK(batch.num_samples() == 2);
  CHECK_FALSE(batch.token_type_ids.defined());
  CHECK(values(batch.row_keys)[4] == static_cast<int64_t>(mix64(sample_key(7, 3, 0) + 1)));
  CHECK(windows.cost(2) == 3);
  CHECK(windows.lengths(1) == std::vector<int32_t>{4, 4, 3});
  const Batch none = windows.batch({}, 7, 3, false);
  CHECK(none.num_tokens() == 0);
  CHECK(none.cu_seqlens.size(0) == 1);
}

TEST_CASE("separate documents are sequences of their own and the last token of each has no target") {
  WindowOptions options = windows_of(6);
  options.documents = Documents::kSeparate;
  // 0-1 | 2 | 3-5 | 6-8 | (empty) | 9-12, windows from 0 and 6; a document begins where the second window does.
  const TokenWindows windows(counting(13, {0, 2, 3, 6, 9, 9}), options);
  REQUIRE(windows.size() == 2);
  const Batch batch = windows.batch({0, 1}, 0, 0, false);
  CHECK(batch.seqlens == std::vector<int32_t>{2, 1, 3, 3, 3});
  CHECK(at::equal(batch.cu_seqlens, at::tensor({0, 2, 3, 6, 9, 12}, at::kInt)));
  CHECK(values(batch.position_ids) == std::vector<int64_t>{0, 1, 0, 0, 1, 2, 0, 1, 2, 0, 1, 2});
  CHECK(values(batch.labels) ==
        std::vector<int64_t>{1001, -100, -100, 1004, 1005, -100, 1007, 1008, -100, 1010, 1011, 1012});
  CHECK(windows.targets(0, 0, 0) == 3);
  CHECK(windows.targets(1, 0, 0) == 5);
  CHECK(batch.num_samples() == 2);
  CHECK(batch.num_sequences() == 5);
}

TEST_CASE("random windows are whole, differ by seed and epoch, and reach all of the stream") {
  WindowOptions options = windows_of(4);
  options.windows = Windows::kRandom;
  options.begin = 10;
  options.end = 32;
  const TokenWindows windows(counting(40), options);
  REQUIRE(windows.size() == 5);
  std::set<int64_t> firsts;
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const Batch batch = windows.batch(all_of(windows), 5, epoch, false);
    epochs.push_back(values(batch.input_ids));
    REQUIRE(epochs.back().size() == 20);
    for (size_t w = 0; w < 20; w += 4) {
      firsts.insert(epochs.back()[w]);
      for (size_t t = 0; t < 4; ++t) {
        CHECK(epochs.back()[w + t] == epochs.back()[w] + static_cast<int64_t>(t));
        CHECK(values(batch.labels)[w + t] == epochs.back()[w + t] + 1);
      }
    }
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[0] != values(windows.batch(all_of(windows), 6, 0, false).input_ids));
  CHECK(*firsts.begin() == 1010);
  CHECK(*firsts.rbegin() == 1027);  // its last target is token 31
  CHECK(firsts.size() == 18);
}

TEST_CASE("steps of windows are the same for any number of ranks, and know their targets") {
  WindowOptions window_options = windows_of(8);
  window_options.documents = GENERATE(Documents::kJoined, Documents::kSeparate);
  window_options.windows = GENERATE(Windows::kEpoch, Windows::kRandom);
  const auto windows =
      std::make_shared<const TokenWindows>(counting(300, {0, 5, 19, 44, 45, 120, 290}), window_options);
  // By step: the label of every row, by its key.
  using Rows = std::multimap<int64_t, int64_t>;
  const auto steps = [&](int64_t world, int64_t accumulation) {
    std::vector<Rows> rows(12);
    for (int64_t rank = 0; rank < world; ++rank) {
      LoaderOptions options;
      options.batch = {12 / (world * accumulation), 0, accumulation, world};
      options.rank = rank;
      options.seed = 3;
      Loader loader(windows, options);
      std::vector<int64_t> step_targets(12);
      for (size_t step = 0; step < rows.size(); ++step) {
        for (bool last = false; !last;) {
          const MicroBatch micro = loader.next();
          const auto keys = values(micro.batch.row_keys), labels = values(micro.batch.labels);
          for (size_t i = 0; i < keys.size(); ++i) rows[step].emplace(keys[i], labels[i]);
          last = micro.last_of_step;
          step_targets[step] = micro.step_targets;
        }
        if (rank + 1 < world) continue;
        CHECK(step_targets[step] == std::count_if(rows[step].begin(), rows[step].end(),
                                                  [](const auto& row) { return row.second != -100; }));
      }
    }
    return rows;
  };
  const std::vector<Rows> one = steps(1, 1);
  CHECK((steps(1, 4) == one));
  CHECK((steps(2, 2) == one));
  CHECK((steps(4, 1) == one));
}

TEST_CASE("fewer tokens than a window and its last target are refused") {
  CHECK_NOTHROW(TokenWindows(counting(9), windows_of(8)));
  CHECK_THROWS_MATCHES(
      TokenWindows(counting(8), windows_of(8)), trainer::DataError,
      Catch::Matchers::Message("a.bin: 8 tokens, expected at least 9 (data.max_length and one "
                               "more)\nhint: lower data.max_length"));
}

TEST_CASE("an id beyond the vocabulary is named with its place") {
  WindowOptions options = windows_of(4);
  options.vocab_size = 1007;
  const TokenWindows windows(counting(12), options);
  CHECK_NOTHROW(windows.batch({0}, 0, 0, false));
  CHECK_THROWS_MATCHES(
      windows.batch({1}, 0, 0, false), trainer::DataError,
      Catch::Matchers::Message("b.bin: token 4: got id 1008; expected 0 to 1006, the vocabulary"));
  std::vector<TokenPart> parts;
  parts.push_back(token_part("a.bin", {1, 2, -3, 4, 5}, {0}));
  const TokenWindows negative(std::make_shared<const TokenStream>(std::move(parts)), options);
  CHECK_THROWS_MATCHES(
      negative.batch({0}, 0, 0, false), trainer::DataError,
      Catch::Matchers::Message("a.bin: token 2: got id -3; expected 0 to 1006, the vocabulary"));
}

TEST_CASE("a window says where it is") {
  const TokenWindows windows(counting(12), windows_of(4));
  CHECK(windows.where(0) == "a.bin: token 0");
  CHECK(windows.where(2) == "b.bin: token 4");
}

TEST_CASE("fingerprints of windows differ when the data do") {
  const uint64_t one = TokenWindows(counting(12), windows_of(4)).fingerprint();
  CHECK(TokenWindows(counting(12), windows_of(4)).fingerprint() == one);
  CHECK(TokenWindows(counting(13), windows_of(4)).fingerprint() != one);
  WindowOptions part = windows_of(4);
  part.end = 11;
  CHECK(TokenWindows(counting(12), part).fingerprint() != one);
}
