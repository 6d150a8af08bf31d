#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/coordinator/messages.h"
#include "launch/hang_watch.h"
#include "launch/worker_group.h"

namespace trainer::launch {

// What this node does in the job, as its coordinator says: one group of workers at a time.
class Node {
 public:
  struct Hooks {
    std::function<void(const Message&)> send;  // to the coordinator, while there is one
    // The job is over for this node, and its workers are gone.
    std::function<void(const Finish&)> on_finished;
    // After lose_coordinator(): the workers are gone.
    std::function<void()> on_idle;
  };

  Node(const GroupContext& context, Hooks hooks);
  ~Node();

  // A message from the coordinator: Start, Stop, Raise, Go, AskStatus, AskStacks, Note or Finish; others are ignored.
  void receive(const Message& message);
  // The coordinator is gone: the workers are stopped, nothing is sent any more.
  void lose_coordinator();
  bool has_workers() const { return group_ != nullptr; }
  // Of its last attempt; none yet: no such.
  const std::optional<Assignment>& last() const { return last_; }
  void kill() {
    if (group_) group_->kill();
  }

 private:
  void start(const Assignment& assignment);
  void on_ended();
  bool is_current(int64_t attempt) const;
  void send(const Message& message);

  GroupContext context_;
  Hooks hooks_;
  std::unique_ptr<WorkerGroup> group_;
  HangWatch watch_;
  std::optional<Finish> finish_;
  bool lost_ = false;
  std::optional<Assignment> last_;
};

}  // namespace trainer::launch
