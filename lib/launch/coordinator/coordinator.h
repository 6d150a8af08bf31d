#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/coordinator/hang_inquiry.h"
#include "launch/coordinator/messages.h"
#include "launch/coordinator/restart_budget.h"
#include "launch/coordinator/stragglers.h"
#include "launch/plan/plan.h"

namespace trainer::launch {

// The job's one decider, in the agent of the node where all nodes meet: who takes part and as what, when an
// attempt starts and stops, what its first failure was, whether there is another. It is a state machine without
// clocks, sockets or processes: members are numbers (0 is the coordinator's own node), times are given.
class Coordinator {
 public:
  struct Hooks {
    std::function<void(int64_t member, const Message&)> send;
    std::function<void(int64_t member)> drop;  // close the connection once all is sent
    // A store for the next attempt; the last one's is gone.
    std::function<Endpoint(int64_t world_size)> open_store;
  };

  Coordinator(const WorkerPlan& plan, Hooks hooks, int64_t now_ns);

  // A new member with its first message.
  void join(int64_t member, const Join& join, int64_t now_ns);
  // The member's connection is gone.
  void lose(int64_t member, const std::string& reason, int64_t now_ns);
  void receive(int64_t member, const Message& message, int64_t now_ns);

  // Of two coordinators that meet, which one's job goes on: one that runs, or has come further, else as is preferred.
  bool is_further_than(const Join& other, bool prefers_own) const;
  bool is_gathering() const { return state_ == State::kGathering || state_ == State::kProbing; }
  int64_t attempt() const { return attempt_; }

  // When on_time() is to be called, unless something else happens before.
  int64_t deadline_ns() const;
  void on_time(int64_t now_ns);

 private:
  enum class State { kGathering, kProbing, kRunning, kStopping, kOver };
  enum Timer { kJoinTimer, kRemind, kLastCall, kProbeTimer, kSettle, kHangTimer, kStopTimer, kNumTimers };

  struct Member {
    Join join;
    bool in_attempt = false;
    bool ended = false;    // its workers of this attempt are
    bool raised = false;   // they have the request in flight
    bool probed = false;   // it reached all peers
    bool leaving = false;  // it was told to stop, and the job goes on without it
    int leave_signal = 0;
    int64_t num_preempted = 0;
    int64_t node_rank = -1;
    int64_t previous_rank = -1;
    int64_t first_rank = 0;
  };
  bool is_elastic() const { return !plan_.is_fixed(); }
  std::vector<int64_t> in_attempt() const;
  std::vector<int64_t> order() const;  // of the members to start, at most max_nodes
  std::string name_of(int64_t member) const;

  void refuse(int64_t id, const std::string& reason, bool is_final);
  void refuse_duplicates(const Member& holder);
  void remove(int64_t id, const std::string& reason, int64_t now_ns);

  void gather(int64_t now_ns);
  void try_begin(int64_t now_ns);
  void begin(int64_t now_ns);
  void probe(const std::vector<int64_t>& members, int64_t now_ns);
  void on_probed(int64_t member, const Probed& probed);
  // What a job waits for that has too few nodes, now and then.
  void remind(int64_t now_ns);
  std::string missing_ranks() const;  // " 1, 2"; empty when any node will do
  void fail_to_gather();
  void start();
  void on_exited(int64_t member, const Exited& exited, int64_t now_ns);
  void on_ended(int64_t member, const Ended& ended, int64_t now_ns);
  void on_leave(int64_t member, const Leave& leave, int64_t now_ns);
  void on_raised(int64_t member, const Raised& raised);
  void on_stalled(const Stalled& stalled, int64_t now_ns);
  void on_status(int64_t member, const Status& status, int64_t now_ns);
  void on_stacks(const Stacks& stacks, int64_t now_ns);
  void choose_suspects(int64_t now_ns);
  void ask_next_stacks(int64_t now_ns);
  void end_hang(int64_t now_ns);

  // Asks the workers to save, or to save and stop.
  void raise(bool stop, int signal);
  void stop_attempt(int64_t now_ns, const std::vector<int64_t>& kill = {}, bool at_once = false);
  void check_all_ended(int64_t now_ns);
  void let_go(int64_t id);
  const char* from_where() const;
  const Failure* find_root() const;
  void decide(int64_t now_ns);
  void finish(const Finish& finish);
  void finish_failed(const Failure& root);
  void finish_stopped(const Failure* root);
  void note(const std::string& text);  // to all nodes' consoles
  void send_all(const Message& message);
  void set(Timer timer, int64_t time_ns) { timers_[timer] = time_ns; }

  const WorkerPlan& plan_;
  Hooks hooks_;
  State state_ = State::kGathering;
  std::map<int64_t, Member> members_;  // by order of joining
  std::array<int64_t, kNumTimers> timers_;

  int64_t attempt_ = -1;   // of the workers that run or ran last
  int64_t num_nodes_ = 0;  // of that attempt
  std::vector<Failure> failures_;
  // Why the last attempt ended, and what was to follow, until the next begins.
  std::optional<Failure> last_failure_;
  std::string after_failure_;
  std::optional<Leave> interrupted_;  // the whole job was told to stop
  bool left_ = false;                 // over here, while the others go on elsewhere
  bool rescaling_ = false;            // the attempt ends because nodes come or go
  int64_t request_id_ = 0;
  bool request_stops_ = false;
  // Who wants a node rank that another has, by its earlier life perhaps, until that one answers or is known to be lost.
  std::map<int64_t, Join> duplicates_;
  std::string last_refusal_;
  std::optional<HangInquiry> hang_;
  std::string hang_log_;  // of the first suspect
  Stragglers stragglers_;
  int64_t num_preempted_ = 0;  // workers of this attempt that saved and stopped when asked
  int64_t num_stopped_ = 0;    // that did not end well after they were told to stop
  int64_t last_step_ = -1;     // of this attempt

  RestartBudget restarts_;
};

}  // namespace trainer::launch
