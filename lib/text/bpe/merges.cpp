#include "text/bpe/merges.h"

#include <algorithm>
#include <array>
#include <functional>

namespace trainer::text {
namespace {

// Up to here looking at all pairs for each merge beats a queue.
constexpr size_t kShort = 40;
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

Merges::Merges(const std::vector<Rule>& rules) {
  size_t size = 2;
  for (shift_ = 63; size < 2 * rules.size() + 1; size *= 2) --shift_;
  slots_.assign(size, {});
  merged_.reserve(rules.size());
  for (const Rule& rule : rules) {
    const uint64_t key = pair(rule.left, rule.right);
    size_t i = slot(key);
    while (slots_[i].rank != kNoRule && slots_[i].pair != key) i = (i + 1) & (size - 1);
    slots_[i] = {key, static_cast<uint32_t>(merged_.size())};
    merged_.push_back(rule.merged);
  }
}

uint32_t Merges::rank(int32_t left, int32_t right) const {
  const uint64_t key = pair(left, right);
  for (size_t i = slot(key);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& s = slots_[i];
    if (s.pair == key) return s.rank;
    if (s.rank == kNoRule) return kNoRule;
  }
}

void Merges::apply(std::vector<int32_t>& ids, size_t begin, Scratch& scratch) const {
  const size_t size = ids.size() - begin;
  if (size < 2) return;
  if (size <= kShort) {
    apply_short(ids, begin);
  } else {
    apply_long(ids, begin, scratch);
  }
}

void Merges::apply_short(std::vector<int32_t>& ids, size_t begin) const {
  int32_t* const word = ids.data() + begin;
  size_t size = ids.size() - begin;
  std::array<uint32_t, kShort> ranks;  // of each symbol with the next
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = rank(word[i], word[i + 1]);
  ranks[size - 1] = kNoRule;
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < size; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == kNoRule) break;
    word[best] = merged_[ranks[best]];
    --size;
    std::copy(word + best + 2, word + size + 1, word + best + 1);
    std::copy(ranks.data() + best + 1, ranks.data() + size + 1, ranks.data() + best);
    if (best > 0) ranks[best - 1] = rank(word[best - 1], word[best]);
    if (best + 1 < size) ranks[best] = rank(word[best], word[best + 1]);
  }
  ids.resize(begin + size);
}

void Merges::apply_long(std::vector<int32_t>& ids, size_t begin, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto size = static_cast<uint32_t>(ids.size() - begin);
  const auto candidate = [&](uint32_t at) { return uint64_t{symbols[at].rank} << 32 | at; };
  symbols.resize(size);
  queue.clear();
  for (uint32_t i = 0; i < size; ++i) {
    const bool last = i + 1 == size;
    symbols[i] = {ids[begin + i], last ? kNoRule : rank(ids[begin + i], ids[begin + i + 1]),
                  i == 0 ? kNone : i - 1, last ? kNone : i + 1};
    if (symbols[i].rank != kNoRule) queue.push_back(candidate(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto update = [&](uint32_t at) {
    auto& symbol = symbols[at];
    symbol.rank = symbol.next == kNone ? kNoRule : rank(symbol.id, symbols[symbol.next].id);
    if (symbol.rank == kNoRule) return;
    queue.push_back(candidate(at));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    const uint64_t best = queue.front();
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    queue.pop_back();
    const auto at = static_cast<uint32_t>(best);
    auto& symbol = symbols[at];
    if (candidate(at) != best) continue;  // another merge took one of the two
    symbol.id = merged_[symbol.rank];
    auto& gone = symbols[symbol.next];
    gone.rank = kNoRule;
    symbol.next = gone.next;
    if (symbol.next != kNone) symbols[symbol.next].previous = at;
    update(at);
    if (symbol.previous != kNone) update(symbol.previous);
  }
  size_t out = begin;
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids[out++] = symbols[i].id;
  ids.resize(out);
}

}  // namespace trainer::text
