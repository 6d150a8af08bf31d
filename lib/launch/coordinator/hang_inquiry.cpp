#include "launch/coordinator/hang_inquiry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"

namespace trainer::launch {
namespace {

constexpr size_t kMaxSuspects = 4;

std::string where(const RankStatus& rank) {
  if (!rank.attached) return "no news from it";
  const char* state = rank.state == 'T'   ? ", stopped by a signal"
                      : rank.state == 'D' ? ", stuck in the kernel"
                                          : "";
  return fmt::format("step {}, {}{}", rank.step, to_string(static_cast<report::Phase>(rank.phase)), state);
}

bool waits_for_peers(const RankStatus& rank) {
  if (rank.state == 'T' || rank.state == 'D') return false;  // whatever it did when it was stopped
  const auto phase = static_cast<report::Phase>(rank.phase);
  return !rank.attached || phase == report::Phase::kSync || phase == report::Phase::kJoining;
}

bool is_halted(const RankStatus& rank) {
  return rank.state == 'T' || rank.state == 'D';
}

}  // namespace

bool HangInquiry::add(int64_t member, const Status& status) {
  if (waiting_for_.erase(member) == 0) return false;
  ranks_.insert(ranks_.end(), status.ranks.begin(), status.ranks.end());
  return waiting_for_.empty();
}

bool HangInquiry::forget(int64_t member) {
  return waiting_for_.erase(member) > 0 && waiting_for_.empty();
}

void HangInquiry::choose_suspects() {
  std::sort(ranks_.begin(), ranks_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  suspects_ = ranks_;
  if (!std::all_of(ranks_.begin(), ranks_.end(), waits_for_peers)) std::erase_if(suspects_, waits_for_peers);
  if (std::any_of(suspects_.begin(), suspects_.end(), is_halted))
    std::erase_if(suspects_, [](const RankStatus& rank) { return !is_halted(rank); });
  if (suspects_.empty()) return;
  const auto is_behind = [](const RankStatus& a, const RankStatus& b) { return a.step < b.step; };
  const int64_t least = std::min_element(suspects_.begin(), suspects_.end(), is_behind)->step;
  std::erase_if(suspects_, [&](const RankStatus& rank) { return rank.step > least; });
  if (suspects_.size() > kMaxSuspects) suspects_.resize(kMaxSuspects);
}

std::optional<int64_t> HangInquiry::next() const {
  if (next_ >= suspects_.size()) return std::nullopt;
  return suspects_[next_].rank;
}

Failure HangInquiry::failure(int64_t now_ns) const {
  const RankStatus& suspect = suspects_.front();
  Failure failure;
  failure.rank = suspect.rank;
  failure.pid = suspect.pid;
  failure.step = suspect.step;
  failure.time_ns = now_ns - to_ns(suspect.since_beat_s);
  failure.code = static_cast<int>(ExitCode::kDistributed);
  failure.message = fmt::format("hang: no progress for {} (the limit is {}, launch.hang_timeout_s)",
                                short_duration(suspect.since_beat_s), short_duration(stalled_.timeout_s));
  std::map<std::string, std::vector<int64_t>> groups;
  for (const RankStatus& rank : ranks_) groups[where(rank)].push_back(rank.rank);
  for (const auto& [what, ranks] : groups)
    failure.message +=
        fmt::format("\nrank{} {}: {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), what);
  failure.hint = "the stacks of its threads are above";
  return failure;
}

}  // namespace trainer::launch
