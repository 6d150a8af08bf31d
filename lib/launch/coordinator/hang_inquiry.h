#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/coordinator/failure.h"
#include "launch/coordinator/messages.h"

namespace trainer::launch {

// A rank stands still: where are all the others, and who is to blame? First every node tells how far its ranks are,
// then those to blame are asked for their stacks, one after the other.
class HangInquiry {
 public:
  HangInquiry(Stalled stalled, std::set<int64_t> members)
      : stalled_(stalled), waiting_for_(std::move(members)) {}

  // True when all have told, so that suspects can be chosen.
  bool add(int64_t member, const Status& status);
  bool forget(int64_t member);
  // Ranks that wait for gradients wait for those who do not; when all wait, for who is furthest behind.
  void choose_suspects();
  bool has_chosen() const { return !suspects_.empty(); }

  // The rank whose stacks are wanted now; none: all are here.
  std::optional<int64_t> next() const;
  void advance() { ++next_; }

  const std::vector<RankStatus>& suspects() const { return suspects_; }
  // Without the node's fields.
  Failure failure(int64_t now_ns) const;

 private:
  Stalled stalled_;
  std::set<int64_t> waiting_for_;
  std::vector<RankStatus> ranks_;  // of all nodes
  std::vector<RankStatus> suspects_;
  size_t next_ = 0;
};

}  // namespace trainer::launch
