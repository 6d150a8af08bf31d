#pragma once

#include <sys/types.h>

#include <csignal>
#include <vector>

namespace trainer::process {

// While it lives, the signals that the agent handles are blocked for the calling thread (one that was
// ignored, as by nohup, stays ignored), and SIGPIPE is ignored.
class SignalMask {
 public:
  explicit SignalMask(const std::vector<int>& signals);
  ~SignalMask();
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;
  void unblock() const { ::sigprocmask(SIG_SETMASK, &old_, nullptr); }
  const sigset_t& handled() const { return handled_; }
  const sigset_t& old() const { return old_; }

 private:
  sigset_t handled_, old_;
  void (*pipe_action_)(int);
};

// Kills and waits for a child, at most a second: one that is stuck in the kernel is left to init.
void kill_and_reap(pid_t pid);

// Ends processes together with all that they left behind. From its construction on this process is the parent
// of all orphans below it; children that it has then are not touched. On the main thread only, who adopts
// orphans.
class Reaper {
 public:
  Reaper();
  // Kills the process groups of `leaders`, children of this process, then what they left in other sessions.
  void end(const std::vector<pid_t>& leaders) const;
  // A child that end() leaves alone, until it is ended itself.
  void spare(pid_t pid) { other_children_.push_back(pid); }

 private:
  std::vector<pid_t> other_children_;
};

}  // namespace trainer::process
