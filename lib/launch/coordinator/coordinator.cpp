#include "launch/coordinator/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "launch/plan/node_setup.h"

namespace trainer::launch {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kSecondNs = 1'000'000'000;
// A rank that lost its peers may be seen before the peer that failed: wait for the cause before stopping
// everyone.
constexpr int64_t kSettleNs = kSecondNs / 2;
constexpr double kProbeS = 15, kStatusS = 2, kStacksS = 15;
constexpr double kStopSlackS = 15;  // a node's own time-outs come first

int64_t to_ns(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

// Of a node or job that was told to stop; signal 0: by a notice, and then it is to be started again in any case.
int stop_code(int signal, bool saved) {
  return saved || signal == 0 ? static_cast<int>(ExitCode::kPreempted) : 128 + signal;
}

const char* plural(int64_t n) {
  return n == 1 ? "" : "s";
}

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

// --- who takes part ---

void Coordinator::join(int64_t id, const Join& join, int64_t now_ns) {
  const auto refuse = [&](bool final, const std::string& reason) {
    hooks_.send(id, Refused{reason, final});
    hooks_.drop(id);
    if (reason != last_refusal_) note("refused: " + reason);  // it may try again and again
    last_refusal_ = reason;
  };
  const Member* own = members_.contains(0) ? &members_.at(0) : nullptr;
  if (state_ == State::kOver) return refuse(true, "the job is over");
  if (own != nullptr && own->join.version != join.version)
    return refuse(true, fmt::format("{} runs trainer {}, {} runs {}; all nodes need the same version",
                                    join.host, join.version, own->join.host, own->join.version));
  if (own != nullptr && own->join.spec_hash != join.spec_hash)
    return refuse(
        true,
        fmt::format("{} has another job than {}: got {}; expected {}; its job file, --set or flags differ",
                    join.host, own->join.host, join.spec_hash, own->join.spec_hash));
  if (!is_elastic()) {
    if (join.node_rank < 0 || join.node_rank >= plan_.max_nodes)
      return refuse(true, fmt::format("{} is node {}; expected --node-rank 0 to {}", join.host,
                                      join.node_rank, plan_.max_nodes - 1));
    for (const auto& [other, member] : members_) {
      if (member.join.node_rank == join.node_rank)  // perhaps its earlier life, not yet known to be lost
        return refuse(false, fmt::format("node rank {} is taken by {}", join.node_rank, member.join.host));
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
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member member = found->second;
  const std::string name = name_of(id);
  members_.erase(found);
  if (state_ == State::kOver) return;
  if (hang_ && hang_->forget(id)) choose_suspects(now_ns);
  if (!member.in_attempt) {
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
  try_begin(now_ns);
}

void Coordinator::try_begin(int64_t now_ns) {
  const auto present = static_cast<int64_t>(members_.size());
  if (present >= plan_.max_nodes) return begin(now_ns);
  if (present < plan_.min_nodes) {
    set(kLastCall, kNever);
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

void Coordinator::fail_to_gather() {
  std::string missing, here;
  if (!is_elastic()) {
    for (int64_t rank = 0; rank < plan_.max_nodes; ++rank) {
      const bool present = std::any_of(members_.begin(), members_.end(),
                                       [&](const auto& m) { return m.second.join.node_rank == rank; });
      if (!present) missing += fmt::format("{}{}", missing.empty() ? "; missing: node rank " : ", ", rank);
    }
  }
  for (const auto& [id, member] : members_)
    here += fmt::format("{}{}", here.empty() ? "" : ", ", member.join.host);
  const std::string advice = last_refusal_.empty() ? "hint: is trainer started on all nodes, with the same "
                                                     "endpoint, and does a firewall let them through?"
                                                   : "refused: " + last_refusal_;
  finish({static_cast<int>(ExitCode::kDistributed),
          fmt::format("FAILED  {} of {} nodes came within {} s (launch.join_timeout_s){}\n  here: {}\n  {}",
                      members_.size(), plan_.min_nodes, plan_.join_timeout_s, missing, here, advice),
          ""});
}

// --- an attempt ---

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
  }
}

void Coordinator::on_exited(int64_t, const Exited& exited, int64_t now_ns) {
  if (exited.attempt != attempt_) return;
  num_stopped_ += exited.failure.after_stop ? 1 : 0;
  failures_.push_back(exited.failure);
  if (state_ != State::kRunning) return;
  if (lost_peers(exited.failure)) {
    if (timers_[kSettle] == kNever) set(kSettle, now_ns + kSettleNs);
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
    if (state_ == State::kStopping) return;
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

// Until there are checkpoints.
const char* Coordinator::from_where() const {
  return plan_.is_trainer ? ", from the first step" : "";
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
    note(fmt::format("{}; going on without it", describe_briefly(*root, num_nodes_)));
  } else if (root != nullptr) {
    if (interrupted_ || !restarts_.take(*root, last_step_)) return finish_failed(*root);
    note(fmt::format("{}\nrestart {} of {}", describe(*root, 0, num_nodes_), restarts_.used(),
                     plan_.max_restarts));
  } else if (interrupted_) {
    return finish({stop_code(interrupted_->signal, num_preempted_ > 0), "", ""});
  } else if (!rescaling_ || all_done) {
    return finish({0, "", ""});
  }
  std::vector<int64_t> leaving;
  for (const auto& [id, member] : members_) {
    if (member.leaving) leaving.push_back(id);
  }
  for (const int64_t id : leaving) let_go(id);
  if (state_ == State::kOver) return;  // the coordinator's own node has left
  for (auto& [id, member] : members_) member.in_attempt = false;
  gather(now_ns);
}

void Coordinator::finish_failed(const Failure& root) {
  int64_t next_ns = 0;
  for (const Failure& other : failures_) {
    if (other.time_ns > root.time_ns && (next_ns == 0 || other.time_ns < next_ns)) next_ns = other.time_ns;
  }
  std::string text = describe(root, next_ns, num_nodes_);
  if (!restarts_.refusal().empty()) text += "\n  " + restarts_.refusal();
  finish({root.program_code(), text, error_file_text(root, text)});
}

void Coordinator::finish(const Finish& finish) {
  state_ = State::kOver;
  timers_.fill(kNever);
  send_all(finish);
  for (const auto& [id, member] : members_) hooks_.drop(id);
}

void Coordinator::on_time(int64_t now_ns) {
  for (int i = 0; i < kNumTimers; ++i) {
    if (timers_[static_cast<size_t>(i)] > now_ns) continue;
    timers_[static_cast<size_t>(i)] = kNever;
    switch (static_cast<Timer>(i)) {
      case kJoinTimer:
        fail_to_gather();
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
