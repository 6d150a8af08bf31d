#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::text {

struct Piece {
  int32_t id;
  uint32_t begin, end;  // bytes of the word
};

// The vocabulary as two byte tries: of pieces that begin a word, and of pieces that continue one. A step is
// one look-up in a flat hash table of (node, byte), so each piece of a word costs at most its distance to the
// word's end.
class PieceTrie {
 public:
  explicit PieceTrie(std::string continuing_prefix);

  // Returns the id that the token had before, or -1.
  int32_t insert(std::string_view token, int32_t id);
  // Greedy longest-match-first. Appends the word's pieces and returns true; false (nothing appended) when
  // some part of the word matches no piece.
  bool split(std::string_view word, std::vector<Piece>& pieces) const;

 private:
  static constexpr uint32_t kBegin = 0, kContinue = 1;  // roots
  // The edge into a node.
  struct Slot {
    uint32_t key = 0;  // (parent node << 8 | byte) + 1; 0: free
    uint32_t node = 0;
    int32_t id = -1;  // of the piece that ends here, or -1
  };
  size_t find(uint32_t key) const;
  void grow();
  int32_t insert_at(uint32_t root, std::string_view piece, int32_t id);

  std::string prefix_;
  int shift_ = 54;           // 64 - log2(slots_.size())
  std::vector<Slot> slots_;  // a power of two
  uint32_t num_nodes_ = 2;
};

}  // namespace trainer::text
