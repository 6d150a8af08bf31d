#include "text/wordpiece/piece_trie.h"

#include <utility>

#include "text/unicode.h"

namespace trainer::text {

PieceTrie::PieceTrie(std::string continuing_prefix)
    : prefix_(std::move(continuing_prefix)), slots_(size_t{1} << (64 - shift_)) {}

size_t PieceTrie::find(uint32_t key) const {
  const size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the high bits of the product are well mixed.
  size_t i = (key * uint64_t{0x9E3779B97F4A7C15}) >> shift_;
  while (slots_[i].key != key && slots_[i].key != 0) i = (i + 1) & mask;
  return i;
}

void PieceTrie::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  --shift_;
  for (const Slot& slot : old) {
    if (slot.key != 0) slots_[find(slot.key)] = slot;
  }
}

int32_t PieceTrie::insert_at(uint32_t root, std::string_view piece, int32_t id) {
  uint32_t node = root;
  Slot* slot = nullptr;
  for (const char byte : piece) {
    if (4 * size_t{num_nodes_} > 3 * slots_.size()) grow();
    const uint32_t key = (node << 8 | static_cast<uint8_t>(byte)) + 1;
    slot = &slots_[find(key)];
    if (slot->key == 0) *slot = {key, num_nodes_++, -1};
    node = slot->node;
  }
  return slot == nullptr ? -1 : std::exchange(slot->id, id);  // an empty piece matches nothing
}

int32_t PieceTrie::insert(std::string_view token, int32_t id) {
  const bool continues = token.size() > prefix_.size() && token.starts_with(prefix_);
  int32_t before = -1;
  if (continues) before = insert_at(kContinue, token.substr(prefix_.size()), id);
  // No word begins with a prefix like "##": punctuation is a word of its own.
  if (!continues || prefix_.empty() || !is_punctuation(static_cast<uint8_t>(prefix_[0]))) {
    before = insert_at(kBegin, token, id);
  }
  return before;
}

bool PieceTrie::split(std::string_view word, std::vector<Piece>& pieces) const {
  const size_t before = pieces.size();
  for (size_t begin = 0; begin < word.size();) {
    uint32_t node = begin == 0 ? kBegin : kContinue;
    Piece longest{-1, static_cast<uint32_t>(begin), 0};
    for (size_t i = begin; i < word.size(); ++i) {
      const Slot& slot = slots_[find((node << 8 | static_cast<uint8_t>(word[i])) + 1)];
      if (slot.key == 0) break;
      node = slot.node;
      if (slot.id >= 0) {
        longest.id = slot.id;
        longest.end = static_cast<uint32_t>(i + 1);
      }
    }
    if (longest.id < 0) {
      pieces.resize(before);
      return false;
    }
    pieces.push_back(longest);
    begin = longest.end;
  }
  return true;
}

}  // namespace trainer::text
