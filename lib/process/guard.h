#pragma once

#include <sys/types.h>

#include <string>

namespace trainer::process {

// A process beside this one that outlives it, should it be killed, by just long enough to kill what its workers started.
// The kernel sees to this process's own children (spawn()), but not to theirs: a data loader's workers, or what was put
// into a session of its own. They are known by a variable of their environment, so give it to all children. Make it while
// there is one thread only.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const { return pid_; }  // 0: there is none (no memory, no pids left); all goes on without
  const std::string& variable() const { return variable_; }  // "TRAINER_AGENT"
  const std::string& value() const { return value_; }        // of this process alone

 private:
  [[noreturn]] void watch(pid_t agent, int agent_pidfd) const;

  std::string variable_ = "TRAINER_AGENT";
  std::string value_;
  pid_t pid_ = 0;
};

}  // namespace trainer::process
