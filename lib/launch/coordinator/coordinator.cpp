#include "launch/coordinator/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "launch/plan/node_setup.h"

namespace trainer::launch {
namespace {

constexpr double kProbeS = 15;
constexpr double kRemindS = 60;

}  // namespace

Coordinator::Coordinator(const WorkerPlan& plan, Hooks hooks, int64_t now_ns)
    : plan_(plan), hooks_(std::move(hooks)), stragglers_(plan.straggler_factor), restarts_(plan) {
  timers_.fill(kNever);
  gather(now_ns);
}

int64_t Coordinator::deadline_ns() const {
  return *std::min_element(timers_.begin(), timers_.end());
}

std::vector<int64_t> Coordinator::in_attempt() const {
  std::vector<int64_t> ids;
  for (const auto& [id, member] : members_) {
    if (member.in_attempt) ids.push_back(id);
  }
  return ids;
}

std::string Coordinator::name_of(int64_t member) const {
  const Member& m = members_.at(member);
  return m.node_rank >= 0 ? fmt::format("node {} ({})", m.node_rank, m.join.host) : m.join.host;
}

void Coordinator::send_all(const Message& message) {
  for (const auto& [id, member] : members_) hooks_.send(id, message);
}

void Coordinator::note(const std::string& text) {
  send_all(Note{text});
}

void Coordinator::refuse(int64_t id, const std::string& reason, bool is_final) {
  hooks_.send(id, Refused{reason, is_final});
  hooks_.drop(id);
  if (reason != last_refusal_) note("refused: " + reason);  // it may try again and again
  last_refusal_ = reason;
}

// Those who want the node rank of `holder`, which is alive.
void Coordinator::refuse_duplicates(const Member& holder) {
  std::erase_if(duplicates_, [&](const auto& duplicate) {
    const auto& [id, join] = duplicate;
    if (join.node_rank != holder.join.node_rank) return false;
    refuse(id,
           fmt::format("node rank {} is taken by {} (pid {}); this one is {} (pid {})", join.node_rank,
                       holder.join.host, holder.join.pid, join.host, join.pid),
           true);
    return true;
  });
}

void Coordinator::join(int64_t id, const Join& join, int64_t now_ns) {
  const Member* own = members_.contains(0) ? &members_.at(0) : nullptr;
  if (state_ == State::kOver) {  // those who look for the job may find it elsewhere
    return refuse(id, left_ ? "this node leaves the job" : "the job is over", !left_);
  }
  if (own != nullptr && own->join.version != join.version)
    return refuse(id,
                  fmt::format("{} runs trainer {}, {} runs {}; all nodes need the same version", join.host,
                              join.version, own->join.host, own->join.version),
                  true);
  if (own != nullptr && own->join.spec_hash != join.spec_hash)
    return refuse(
        id,
        fmt::format("{} has another job than {}: got {}; expected {}; its job file, --set or flags differ",
                    join.host, own->join.host, join.spec_hash, own->join.spec_hash),
        true);
  if (!is_elastic()) {
    if (join.node_rank < 0 || join.node_rank >= plan_.max_nodes)
      return refuse(id,
                    fmt::format("{} is node {}; expected --node-rank 0 to {}", join.host, join.node_rank,
                                plan_.max_nodes - 1),
                    true);
    for (const auto& [other, member] : members_) {
      if (member.join.node_rank != join.node_rank) continue;
      duplicates_[id] = join;
      return other == 0 ? refuse_duplicates(member) : hooks_.send(other, AskAlive{});
    }
  }
  Member& member = members_[id];
  member.join = join;
  hooks_.send(id, Accepted{});
  if (join.last_attempt > attempt_) {
    attempt_ = join.last_attempt;
    restarts_.resume(join.restarts);
  }
  member.previous_rank = join.previous_rank;
  if (state_ == State::kGathering) {
    try_begin(now_ns);
  } else if (state_ == State::kProbing) {
    gather(now_ns);  // begins again with all
  } else if (state_ == State::kRunning && !interrupted_ && !rescaling_ && is_elastic() &&
             static_cast<int64_t>(in_attempt().size()) < plan_.max_nodes) {
    note(fmt::format("{} has come: the workers stop and start again with it{}", join.host, from_where()));
    rescaling_ = true;
    raise(true, SIGTERM);
  } else if (state_ == State::kRunning && is_elastic()) {
    hooks_.send(
        id, Note{fmt::format("the job runs on its {} nodes already: waiting as a spare", plan_.max_nodes)});
  }
}

void Coordinator::lose(int64_t id, const std::string& reason, int64_t now_ns) {
  if (duplicates_.erase(id) > 0 || !members_.contains(id)) return;
  const int64_t rank = members_.at(id).join.node_rank;
  remove(id, reason, now_ns);
  const auto heir = std::find_if(duplicates_.begin(), duplicates_.end(),
                                 [&](const auto& duplicate) { return duplicate.second.node_rank == rank; });
  if (heir == duplicates_.end()) return;
  const auto [heir_id, join] = *heir;
  duplicates_.erase(heir);
  this->join(heir_id, join, now_ns);
}

void Coordinator::remove(int64_t id, const std::string& reason, int64_t now_ns) {
  const auto found = members_.find(id);
  const Member member = found->second;
  const std::string name = name_of(id);
  members_.erase(found);
  if (state_ == State::kOver) return;
  if (hang_ && hang_->forget(id)) choose_suspects(now_ns);
  if (!member.in_attempt) {
    note(fmt::format("{} is lost: {}", name, reason));
    if (state_ == State::kProbing) gather(now_ns);
    if (state_ == State::kGathering) try_begin(now_ns);
    return;
  }
  if (!member.leaving) {
    Failure failure;
    failure.node_rank = member.node_rank;
    failure.node_lost = true;
    failure.host = member.join.host;
    failure.pid = member.join.pid;
    failure.time_ns = now_ns;
    failure.code = static_cast<int>(ExitCode::kDistributed);
    failure.message =
        fmt::format("the connection to its agent (pid {}) is lost: {}", member.join.pid, reason);
    failure.hint = "the node is down, its agent was killed, or the network between the nodes is";
    failures_.push_back(failure);
    note(fmt::format("{} is lost: {}", name, reason));
  }
  if (state_ == State::kRunning && !member.leaving) {
    stop_attempt(now_ns);
  } else {
    check_all_ended(now_ns);
  }
}

bool Coordinator::is_further_than(const Join& other, bool prefers_own) const {
  if (state_ == State::kRunning || state_ == State::kStopping) return true;
  return attempt_ != other.last_attempt ? attempt_ > other.last_attempt : prefers_own;
}

void Coordinator::gather(int64_t now_ns) {
  state_ = State::kGathering;
  timers_.fill(kNever);
  set(kJoinTimer, now_ns + to_ns(plan_.join_timeout_s));
  set(kRemind, attempt_ < 0 ? now_ns + to_ns(kRemindS) : kNever);  // at first the agent has said so
  try_begin(now_ns);
}

void Coordinator::remind(int64_t now_ns) {
  set(kRemind, now_ns + to_ns(kRemindS));
  const auto present = static_cast<int64_t>(members_.size());
  if (present >= plan_.min_nodes) return;
  const std::string ranks = missing_ranks();
  note(fmt::format("{} of {} nodes are here; waiting for {}, at most {:.0f} s more (launch.join_timeout_s)",
                   present, plan_.min_nodes,
                   ranks.empty() ? fmt::format("{} more", plan_.min_nodes - present) : "node rank" + ranks,
                   1e-9 * static_cast<double>(timers_[kJoinTimer] - now_ns)));
}

void Coordinator::try_begin(int64_t now_ns) {
  const auto present = static_cast<int64_t>(members_.size());
  if (present >= plan_.max_nodes) return begin(now_ns);
  if (present < plan_.min_nodes) {
    set(kLastCall, kNever);
    if (timers_[kRemind] == kNever) remind(now_ns);
    return;
  }
  // A restart with the same nodes need not wait for more.
  const bool unchanged = attempt_ >= 0 && present == num_nodes_ && !rescaling_;
  if (unchanged || plan_.last_call_s <= 0) return begin(now_ns);
  if (timers_[kLastCall] == kNever) {
    set(kLastCall, now_ns + to_ns(plan_.last_call_s));
    note(fmt::format("{} of {} to {} nodes are here: starting in {} s unless more come (launch.last_call_s)",
                     present, plan_.min_nodes, plan_.max_nodes, plan_.last_call_s));
  }
}

// Nodes keep their order; new ones come after, by the rank they asked for, then in order of joining.
std::vector<int64_t> Coordinator::order() const {
  std::vector<int64_t> ids;
  for (const auto& [id, member] : members_) ids.push_back(id);
  const auto key = [&](int64_t id) {
    const Member& m = members_.at(id);
    const int64_t asked = m.join.node_rank >= 0 ? m.join.node_rank : kNever;
    return is_elastic() ? std::pair(m.previous_rank >= 0 ? m.previous_rank : kNever, asked)
                        : std::pair(asked, kNever);
  };
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  if (static_cast<int64_t>(ids.size()) > plan_.max_nodes) ids.resize(static_cast<size_t>(plan_.max_nodes));
  return ids;
}

void Coordinator::begin(int64_t now_ns) {
  timers_.fill(kNever);
  const std::vector<int64_t> ids = order();
  const bool all_probed =
      std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return members_.at(id).probed; });
  if (all_probed || !plan_.preflight) return start();
  std::vector<std::string> facts;
  for (const int64_t id : ids) facts.push_back(members_.at(id).join.facts);
  const Inspection inspection = inspect_nodes(facts);
  if (!inspection.warnings.empty()) note(inspection.warnings);
  if (!inspection.errors.empty()) {
    const ExitCode code = plan_.max_nodes == 1 ? ExitCode::kUsage : ExitCode::kDistributed;
    return finish(
        {static_cast<int>(code), "pre-flight, before any worker was started:\n" + inspection.errors, ""});
  }
  if (ids.size() > 1) {
    probe(ids, now_ns);
  } else {
    members_.at(ids.front()).probed = true;
    start();
  }
}

void Coordinator::probe(const std::vector<int64_t>& ids, int64_t now_ns) {
  state_ = State::kProbing;
  set(kProbeTimer, now_ns + to_ns(kProbeS));
  for (auto& [id, member] : members_) member.probed = std::count(ids.begin(), ids.end(), id) == 0;
  for (const int64_t id : ids) {
    Probe probe;
    for (const int64_t peer : ids) {
      if (peer == id) continue;
      const Join& join = members_.at(peer).join;
      probe.hosts.push_back(join.host);
      probe.peers.push_back({join.address, join.probe_port});
    }
    hooks_.send(id, probe);
  }
}

void Coordinator::on_probed(int64_t id, const Probed& probed) {
  if (state_ != State::kProbing) return;
  if (!probed.problems.empty()) {
    finish({static_cast<int>(ExitCode::kDistributed),
            fmt::format("FAILED  before any worker was started: {} does not reach its peers\n  {}",
                        name_of(id), fmt::join(probed.problems, "\n  ")),
            ""});
    return;
  }
  members_.at(id).probed = true;
  if (std::all_of(members_.begin(), members_.end(), [](const auto& m) { return m.second.probed; })) start();
}

std::string Coordinator::missing_ranks() const {
  std::string missing;
  for (int64_t rank = 0; rank < plan_.max_nodes && !is_elastic(); ++rank) {
    const bool present = std::any_of(members_.begin(), members_.end(),
                                     [&](const auto& m) { return m.second.join.node_rank == rank; });
    if (!present) missing += fmt::format("{}{}", missing.empty() ? " " : ", ", rank);
  }
  return missing;
}

void Coordinator::fail_to_gather() {
  const std::string missing = missing_ranks();
  std::string here;
  for (const auto& [id, member] : members_)
    here += fmt::format("{}{}", here.empty() ? "" : ", ", member.join.host);
  const std::string advice = last_refusal_.empty() ? "hint: is trainer started on all nodes, with the same "
                                                     "endpoint, and does a firewall let them through?"
                                                   : "refused: " + last_refusal_;
  if (last_failure_) {
    const std::string who =
        missing.empty() ? fmt::format("only {} of {} nodes were here", members_.size(), plan_.min_nodes)
                        : fmt::format("node rank{} did not come back", missing);
    std::string text = describe(*last_failure_, 0, num_nodes_) +
                       fmt::format("\n  {}: {} within {} s (launch.join_timeout_s)\n  here: {}",
                                   after_failure_, who, plan_.join_timeout_s, here);
    if (!last_refusal_.empty()) text += "\n  " + advice;
    return finish({last_failure_->program_code(), text, error_file_text(*last_failure_, text)});
  }
  finish({static_cast<int>(ExitCode::kDistributed),
          fmt::format("FAILED  {} of {} nodes came within {} s (launch.join_timeout_s){}\n  here: {}\n  {}",
                      members_.size(), plan_.min_nodes, plan_.join_timeout_s,
                      missing.empty() ? "" : "; missing: node rank" + missing, here, advice),
          ""});
}

void Coordinator::on_time(int64_t now_ns) {
  for (int i = 0; i < kNumTimers; ++i) {
    if (timers_[static_cast<size_t>(i)] > now_ns) continue;
    timers_[static_cast<size_t>(i)] = kNever;
    switch (static_cast<Timer>(i)) {
      case kJoinTimer:
        fail_to_gather();
        break;
      case kRemind:
        remind(now_ns);
        break;
      case kLastCall:
        begin(now_ns);
        break;
      case kProbeTimer:
        for (const auto& [id, member] : members_) {
          if (!member.probed) return on_probed(id, {{"it did not answer"}});
        }
        break;
      case kSettle:
        stop_attempt(now_ns);
        break;
      case kHangTimer:
        if (hang_ && !hang_->has_chosen()) {
          choose_suspects(now_ns);
        } else if (hang_) {
          end_hang(now_ns);
        }
        break;
      case kStopTimer:
        for (const int64_t id : in_attempt()) {
          if (id == 0 || state_ != State::kStopping || !members_.contains(id) || members_.at(id).ended)
            continue;
          hooks_.drop(id);
          lose(id, "it did not end its workers in time", now_ns);
        }
        break;
      case kNumTimers:
        break;
    }
  }
}

}  // namespace trainer::launch
