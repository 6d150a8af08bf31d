#include "tokens/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ranges>

#include "core/error.h"
#include "core/mix64.h"
#include "core/parallel_for.h"

namespace trainer::tokens {
namespace {

constexpr int64_t kChunk = int64_t{1} << 22;  // tokens that a thread takes at once

// Calls f with the part's ids as what they are.
template <class F>
decltype(auto) with_ids(const TokenPart& part, F f) {
  switch (part.type) {
    case TokenType::kUint8:
      return f(static_cast<const uint8_t*>(part.ids));
    case TokenType::kInt8:
      return f(static_cast<const int8_t*>(part.ids));
    case TokenType::kInt16:
      return f(static_cast<const int16_t*>(part.ids));
    case TokenType::kUint16:
      return f(static_cast<const uint16_t*>(part.ids));
    case TokenType::kInt32:
      return f(static_cast<const int32_t*>(part.ids));
    case TokenType::kInt64:
      return f(static_cast<const int64_t*>(part.ids));
    case TokenType::kUint32:
      break;
  }
  return f(static_cast<const uint32_t*>(part.ids));
}

}  // namespace

int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
    case TokenType::kUint32:
      return 4;
    case TokenType::kInt64:
      break;
  }
  return 8;
}

TokenStream::TokenStream(std::vector<TokenPart> parts) : parts_(std::move(parts)), starts_{0} {
  for (const TokenPart& part : parts_) starts_.push_back(starts_.back() + part.size);
}

size_t TokenStream::part_of(int64_t position) const {
  return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end() - 1, position) -
                             starts_.begin()) -
         1;
}

void TokenStream::read(int64_t begin, int64_t count, int64_t* ids) const {
  for (size_t i = part_of(begin); count > 0; ++i) {
    const int64_t offset = begin - starts_[i];
    const int64_t n = std::min(count, parts_[i].size - offset);
    with_ids(parts_[i], [&](const auto* from) { std::copy_n(from + offset, n, ids); });
    begin += n;
    ids += n;
    count -= n;
  }
}

std::string TokenStream::where(int64_t position) const {
  const size_t i = part_of(position);
  return fmt::format("{}: token {}", parts_[i].name, position - starts_[i]);
}

bool TokenStream::has_documents() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const TokenPart& part) { return part.documents != nullptr; });
}

void TokenStream::document_starts(int64_t begin, int64_t end, std::vector<int64_t>& starts) const {
  for (size_t p = part_of(begin); p < parts_.size() && starts_[p] < end; ++p) {
    const Documents& documents = *parts_[p].documents;
    const auto numbers = std::views::iota(int64_t{0}, documents.size());
    int64_t i = *std::ranges::partition_point(
        numbers, [&](int64_t document) { return documents.start(document) < begin - starts_[p]; });
    const int64_t stop = std::min(end, starts_[p + 1]);  // documents that are empty may begin at a part's end
    for (; i < documents.size(); ++i) {
      const int64_t start = starts_[p] + documents.start(i);
      if (start >= stop) break;
      if (starts.empty() || starts.back() != start) starts.push_back(start);
    }
  }
}

void TokenStream::find_documents(int64_t delimiter, bool at_beginning, int64_t num_threads) {
  for (TokenPart& part : parts_) {
    if (part.documents != nullptr) continue;
    std::vector<std::vector<int64_t>> found(static_cast<size_t>(part.size / kChunk + 1));
    parallel_for(part.size, kChunk, num_threads, [&](int64_t begin, int64_t end) {
      std::vector<int64_t>& starts = found[static_cast<size_t>(begin / kChunk)];
      with_ids(part, [&](const auto* ids) {
        for (int64_t i = begin; i < end; ++i) {
          if (static_cast<int64_t>(ids[i]) == delimiter) starts.push_back(at_beginning ? i : i + 1);
        }
      });
    });
    // Files cut documents anywhere: a later one begins with a new document where the one before ends one.
    std::vector<int64_t> starts;
    const int64_t begin = starts_[static_cast<size_t>(&part - parts_.data())];
    int64_t before = delimiter;
    if (begin > 0) read(begin - 1, 1, &before);
    if (begin == 0 || (before == delimiter && !at_beginning)) starts.push_back(0);
    for (const std::vector<int64_t>& more : found) starts.insert(starts.end(), more.begin(), more.end());
    part.documents = std::make_shared<const KeptDocuments>(std::move(starts));
  }
}

int64_t TokenStream::find_outside(int64_t begin, int64_t end, int64_t vocab_size, int64_t num_threads) const {
  std::atomic<int64_t> first = INT64_MAX;
  for (size_t p = 0; p < parts_.size() && first == INT64_MAX; ++p) {
    const int64_t from = std::max(begin, starts_[p]) - starts_[p];
    const int64_t to = std::min(end, starts_[p + 1]) - starts_[p];
    if (from >= to) continue;
    parallel_for(to - from, kChunk, num_threads, [&](int64_t chunk_begin, int64_t chunk_end) {
      with_ids(parts_[p], [&](const auto* ids) {
        using Id = std::decay_t<decltype(*ids)>;
        const Id *chunk = ids + from + chunk_begin, *stop = ids + from + chunk_end;
        Id low = 0, high = 0;
        for (const Id* id = chunk; id != stop; ++id) {
          low = std::min(low, *id);
          high = std::max(high, *id);
        }
        if (static_cast<int64_t>(low) >= 0 && static_cast<int64_t>(high) < vocab_size) return;
        const Id* bad = std::find_if(chunk, stop, [&](Id id) {
          return static_cast<int64_t>(id) < 0 || static_cast<int64_t>(id) >= vocab_size;
        });
        const int64_t position = starts_[p] + (bad - ids);
        int64_t known = first;
        while (position < known && !first.compare_exchange_weak(known, position)) {
        }
      });
    });
  }
  return first == INT64_MAX ? -1 : first.load();
}

uint64_t TokenStream::fingerprint() const {
  constexpr int64_t kPlaces = 4096, kRun = 16;
  uint64_t hash = mix64(static_cast<uint64_t>(size()));
  int64_t ids[kRun];
  const int64_t run = std::min(kRun, size());
  const int64_t places = std::min(kPlaces, size() / kRun + 1);
  for (int64_t i = 0; i < places; ++i) {
    // The last place is the end.
    const int64_t begin =
        places == 1 ? 0 : static_cast<int64_t>(static_cast<__int128>(size() - run) * i / (places - 1));
    read(begin, run, ids);
    for (int64_t j = 0; j < run; ++j) hash = mix64(hash ^ static_cast<uint64_t>(ids[j]));
  }
  return hash;
}

int64_t validation_begin(const TokenStream& stream, double fraction) {
  const int64_t n = stream.size();
  const auto exact = static_cast<int64_t>(static_cast<double>(n) * (1.0 - fraction));
  if (exact <= 0 || exact >= n) {
    fail<DataError>("{}: {} tokens are too few to keep a fraction of {} for validation",
                    stream.parts().front().name, n, fraction);
  }
  if (!stream.has_documents()) return exact;
  const int64_t reach = (n - exact) / 2;
  std::vector<int64_t> starts;
  stream.document_starts(std::max<int64_t>(exact - reach, 1), exact + reach + 1, starts);
  if (starts.empty()) return exact;
  return *std::min_element(starts.begin(), starts.end(),
                           [&](int64_t a, int64_t b) { return std::abs(a - exact) < std::abs(b - exact); });
}

}  // namespace trainer::tokens
