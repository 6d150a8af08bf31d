// Of the coordinator: an attempt, from the start of the workers to what follows.
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

namespace trainer::launch {
namespace {

// A rank that lost its peers may be seen before the peer that failed: wait for the cause before stopping
// everyone.
constexpr double kSettleS = 0.5;
constexpr double kStatusS = 2, kStacksS = 15;
constexpr double kStopSlackS = 15;  // a node's own time-outs come first

const char* plural(int64_t n) {
  return n == 1 ? "" : "s";
}

}  // namespace

void Coordinator::start() {
  timers_.fill(kNever);
  if (plan_.preflight_only) {
    const size_t n = members_.size();
    return finish({0,
                   n == 1 ? "pre-flight: all is well"
                          : fmt::format("pre-flight: all is well, {} nodes reach each other", n),
                   ""});
  }
  state_ = State::kRunning;
  const std::vector<int64_t> ids = order();
  ++attempt_;
  num_nodes_ = static_cast<int64_t>(ids.size());
  failures_.clear();
  last_failure_.reset();
  rescaling_ = false;
  hang_.reset();
  num_preempted_ = 0;
  num_stopped_ = 0;
  last_step_ = -1;
  int64_t world_size = 0;
  for (const int64_t id : ids) world_size += members_.at(id).join.nproc;
  const Endpoint store = hooks_.open_store(world_size);
  stragglers_.begin(num_nodes_);

  int64_t node_rank = 0, first_rank = 0;
  for (auto& [id, member] : members_) {
    member.in_attempt = member.ended = member.raised = false;
    member.num_preempted = 0;
  }
  for (const int64_t id : ids) {
    Member& member = members_.at(id);
    member.in_attempt = true;
    member.node_rank = member.previous_rank = node_rank;
    member.first_rank = first_rank;
    hooks_.send(id, Start{{attempt_, node_rank, num_nodes_, first_rank, world_size, restarts_.used(),
                           store.host, store.port}});
    ++node_rank;
    first_rank += member.join.nproc;
  }
  if (num_nodes_ > 1 || attempt_ > 0) {
    const std::string hosts = num_nodes_ > 1 ? fmt::format(" on {} nodes", num_nodes_) : "";
    note(fmt::format("attempt {}: {} worker{}{}", attempt_, world_size, plural(world_size), hosts));
  }
}

void Coordinator::receive(int64_t id, const Message& message, int64_t now_ns) {
  if (!members_.contains(id) || state_ == State::kOver) return;
  if (const auto* exited = std::get_if<Exited>(&message)) {
    on_exited(id, *exited, now_ns);
  } else if (const auto* ended = std::get_if<Ended>(&message)) {
    on_ended(id, *ended, now_ns);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    on_leave(id, *leave, now_ns);
  } else if (std::get_if<AskSave>(&message) != nullptr) {
    if (state_ == State::kRunning) raise(false, SIGUSR1);
  } else if (const auto* raised = std::get_if<Raised>(&message)) {
    on_raised(id, *raised);
  } else if (const auto* stalled = std::get_if<Stalled>(&message)) {
    on_stalled(*stalled, now_ns);
  } else if (const auto* status = std::get_if<Status>(&message)) {
    on_status(id, *status, now_ns);
  } else if (const auto* stacks = std::get_if<Stacks>(&message)) {
    on_stacks(*stacks, now_ns);
  } else if (const auto* probed = std::get_if<Probed>(&message)) {
    on_probed(id, *probed);
  } else if (std::holds_alternative<Alive>(message)) {
    refuse_duplicates(members_.at(id));
  }
}

void Coordinator::on_exited(int64_t, const Exited& exited, int64_t now_ns) {
  if (exited.attempt != attempt_) return;
  num_stopped_ += exited.failure.after_stop ? 1 : 0;
  failures_.push_back(exited.failure);
  if (state_ != State::kRunning) return;
  if (lost_peers(exited.failure)) {
    if (timers_[kSettle] == kNever) set(kSettle, now_ns + to_ns(kSettleS));
  } else {
    stop_attempt(now_ns);
  }
}

void Coordinator::on_ended(int64_t id, const Ended& ended, int64_t now_ns) {
  Member& member = members_.at(id);
  if (ended.attempt != attempt_ || !member.in_attempt || member.ended) return;
  member.ended = true;
  member.num_preempted = ended.num_preempted;
  num_preempted_ += ended.num_preempted;
  last_step_ = std::max(last_step_, ended.last_step);
  check_all_ended(now_ns);
}

void Coordinator::check_all_ended(int64_t now_ns) {
  if (state_ != State::kRunning && state_ != State::kStopping) return;
  for (const auto& [id, member] : members_) {
    if (member.in_attempt && !member.ended) return;
  }
  decide(now_ns);
}

void Coordinator::on_leave(int64_t id, const Leave& leave, int64_t now_ns) {
  Member& member = members_.at(id);
  const std::string who = num_nodes_ > 1 ? name_of(id) + ": " : "";
  if (leave.at_once && (interrupted_ || member.leaving || state_ == State::kStopping)) {
    interrupted_ = leave;
    stop_attempt(now_ns, {}, true);
    return;
  }
  if (interrupted_ || member.leaving) return;
  // The coordinator's node can leave only when another can be where they meet.
  const bool job_goes_on = is_elastic() && plan_.min_nodes < plan_.max_nodes && members_.size() > 1 &&
                           (id != 0 || plan_.endpoints.size() > 1);
  int64_t running = 0;
  for (const auto& [other, m] : members_) running += m.in_attempt && !m.ended ? m.join.nproc : 0;
  if (!job_goes_on) {
    interrupted_ = leave;
    if (state_ == State::kGathering || state_ == State::kProbing) {
      return finish({stop_code(leave.signal, false), who + leave.what + ": no worker was running", ""});
    }
    if (state_ == State::kStopping)
      return note(fmt::format("{}{}: the workers are being stopped already; no restart", who, leave.what));
    note(fmt::format("{}{}: stopping {} worker{}{}", who, leave.what, running, plural(running),
                     leave.signal == SIGINT ? " (again to kill)" : ""));
    raise(true, leave.signal);
    return;
  }
  member.leaving = true;
  member.leave_signal = leave.signal;
  if (!member.in_attempt || state_ == State::kGathering || state_ == State::kProbing) {
    let_go(id);
    if (state_ == State::kProbing) gather(now_ns);
    return;
  }
  note(fmt::format("{}{}: it leaves; the workers stop and start again without it{}", who, leave.what,
                   from_where()));
  rescaling_ = true;
  if (state_ == State::kRunning) raise(true, leave.signal);
}

// The node is done, the job is not. With the coordinator's own, the others meet again at another endpoint.
void Coordinator::let_go(int64_t id) {
  const Member member = members_.at(id);
  members_.erase(id);
  if (id == 0) {
    state_ = State::kOver;
    left_ = true;
    timers_.fill(kNever);
    for (const auto& [other, m] : members_) {
      hooks_.send(other,
                  Refused{fmt::format("{}, where the nodes meet, leaves the job", member.join.host), false});
      hooks_.drop(other);
    }
  }
  hooks_.send(id, Finish{stop_code(member.leave_signal, member.num_preempted > 0), "", ""});
  hooks_.drop(id);
}

const char* Coordinator::from_where() const {
  return plan_.is_trainer ? ", from the newest checkpoint, or else the first step" : "";
}

// --- requests to the workers ---

void Coordinator::raise(bool stop, int signal) {
  ++request_id_;
  request_stops_ = stop;
  for (auto& [id, member] : members_) {
    if (!member.in_attempt) continue;
    member.raised = member.ended;
    hooks_.send(id, Raise{attempt_, request_id_, stop, signal});
  }
}

void Coordinator::on_raised(int64_t id, const Raised& raised) {
  if (raised.attempt != attempt_ || raised.id != request_id_) return;
  members_.at(id).raised = true;
  for (const auto& [other, member] : members_) {
    if (member.in_attempt && !member.raised && !member.ended) return;
  }
  for (const int64_t other : in_attempt()) hooks_.send(other, Go{attempt_, request_id_});
}

void Coordinator::stop_attempt(int64_t now_ns, const std::vector<int64_t>& kill, bool at_once) {
  state_ = State::kStopping;
  set(kSettle, kNever);
  set(kHangTimer, kNever);
  set(kStopTimer, now_ns + to_ns(plan_.grace_s + kStopSlackS));
  for (const int64_t id : in_attempt()) hooks_.send(id, Stop{attempt_, at_once, kill});
  check_all_ended(now_ns);
}

// --- hangs and stragglers ---

void Coordinator::on_stalled(const Stalled& stalled, int64_t now_ns) {
  if (state_ != State::kRunning || hang_ || stalled.attempt != attempt_) return;
  std::set<int64_t> asked;
  for (const int64_t id : in_attempt()) {
    if (!members_.at(id).ended) asked.insert(id);
  }
  hang_.emplace(stalled, asked);
  set(kHangTimer, now_ns + to_ns(kStatusS));
  for (const int64_t id : asked) hooks_.send(id, AskStatus{attempt_});
}

void Coordinator::on_status(int64_t id, const Status& status, int64_t now_ns) {
  if (status.attempt != attempt_ || state_ != State::kRunning) return;
  if (status.interval >= 0) {
    for (const std::string& line : stragglers_.add(members_.at(id).node_rank, status)) note(line);
  } else if (hang_ && hang_->add(id, status)) {
    choose_suspects(now_ns);
  }
}

void Coordinator::choose_suspects(int64_t now_ns) {
  hang_->choose_suspects();
  if (hang_->has_chosen()) {
    ask_next_stacks(now_ns);
  } else {
    hang_.reset();
  }
}

void Coordinator::ask_next_stacks(int64_t now_ns) {
  const std::optional<int64_t> rank = hang_->next();
  if (!rank) return end_hang(now_ns);
  set(kHangTimer, now_ns + to_ns(kStacksS));
  for (const int64_t id : in_attempt()) {
    const Member& member = members_.at(id);
    if (*rank >= member.first_rank && *rank < member.first_rank + member.join.nproc)
      hooks_.send(id, AskStacks{attempt_, *rank});
  }
}

void Coordinator::on_stacks(const Stacks& stacks, int64_t now_ns) {
  if (!hang_ || stacks.attempt != attempt_ || hang_->next() != stacks.rank) return;
  note(fmt::format("stacks of rank {}:\n{}", stacks.rank, stacks.text));
  if (hang_log_.empty()) hang_log_ = stacks.log;
  hang_->advance();
  ask_next_stacks(now_ns);
}

void Coordinator::end_hang(int64_t now_ns) {
  Failure failure = hang_->failure(now_ns);
  failure.log = std::exchange(hang_log_, "");
  std::vector<int64_t> kill;  // a stopped or stuck process heeds no SIGTERM
  for (const RankStatus& rank : hang_->suspects()) kill.push_back(rank.rank);
  hang_.reset();
  for (const int64_t id : in_attempt()) {
    const Member& member = members_.at(id);
    if (failure.rank < member.first_rank) continue;
    failure.node_rank = member.node_rank;
    failure.host = member.join.host;
  }
  failures_.push_back(failure);
  stop_attempt(now_ns, kill);
}

// --- after an attempt ---

// A lost node is noticed by heartbeat, some time after its peers' workers have failed over it.
const Failure* Coordinator::find_root() const {
  const Failure* root = root_cause(failures_);
  if (root == nullptr || !blames_peers(*root)) return root;
  const int64_t window_ns = to_ns(plan_.heartbeat_timeout_s + 1);
  for (const Failure& failure : failures_) {
    if (failure.node_lost && failure.node_rank != root->node_rank &&
        failure.time_ns - root->time_ns < window_ns)
      return &failure;
  }
  return root;
}

void Coordinator::decide(int64_t now_ns) {
  timers_.fill(kNever);
  const bool was_asked = interrupted_ || rescaling_;
  // What workers say that were told to stop is no failure.
  if (was_asked) {
    std::erase_if(failures_,
                  [](const Failure& failure) { return failure.after_stop || blames_peers(failure); });
  }
  const Failure* root = find_root();
  const bool all_done = num_preempted_ == 0 && num_stopped_ == 0;
  const bool only_left = root != nullptr && root->node_lost && is_elastic() && !interrupted_;
  if (only_left) {  // nodes may come and go
    const auto left = static_cast<int64_t>(members_.size());
    after_failure_ = left >= plan_.min_nodes
                         ? "going on without it"
                         : fmt::format("{} of at least {} nodes are left", left, plan_.min_nodes);
    note(fmt::format("{}; {}", describe_briefly(*root, num_nodes_), after_failure_));
  } else if (root != nullptr) {
    if (!restarts_.take(*root, last_step_)) return finish_failed(*root);
    if (interrupted_) return finish_stopped(root);
    after_failure_ = fmt::format("restart {} of {}", restarts_.used(), plan_.max_restarts);
    note(fmt::format("{}\n{}", describe(*root, 0, num_nodes_), after_failure_));
  } else if (interrupted_) {
    return finish_stopped(nullptr);
  } else if (!rescaling_ || all_done) {
    return finish({0, "", ""});
  }
  if (root != nullptr) last_failure_ = *root;
  std::vector<int64_t> leaving;
  for (const auto& [id, member] : members_) {
    if (member.leaving) leaving.push_back(id);
  }
  for (const int64_t id : leaving) let_go(id);
  if (state_ == State::kOver) return;  // the coordinator's own node has left
  for (auto& [id, member] : members_) member.in_attempt = false;
  last_refusal_.clear();
  gather(now_ns);
}

void Coordinator::finish_failed(const Failure& root) {
  int64_t next_ns = 0;
  for (const Failure& other : failures_) {
    if (!other.after_stop && other.time_ns > root.time_ns && (next_ns == 0 || other.time_ns < next_ns))
      next_ns = other.time_ns;
  }
  std::string text = describe(root, next_ns, num_nodes_);
  if (!restarts_.refusal().empty()) text += "\n  " + restarts_.refusal();
  finish({root.program_code(), text, error_file_text(root, text)});
}

// `root`: a failure that a restart would have followed.
void Coordinator::finish_stopped(const Failure* root) {
  const std::string text = root == nullptr ? ""
                                           : fmt::format("{}\n  not restarted: {}",
                                                         describe(*root, 0, num_nodes_), interrupted_->what);
  finish({stop_code(interrupted_->signal, num_preempted_ > 0), text, ""});
}

void Coordinator::finish(const Finish& finish) {
  state_ = State::kOver;
  timers_.fill(kNever);
  send_all(finish);
  for (const auto& [id, join] : duplicates_) refuse(id, "the job is over", true);
  for (const auto& [id, member] : members_) hooks_.drop(id);
}

}  // namespace trainer::launch
