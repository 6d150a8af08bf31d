#pragma once

#include <sys/types.h>

#include <string>

#include "core/descriptor.h"

namespace trainer::process {

// A process beside this one that outlives it, should it be killed, by just long enough to kill what its workers started.
// The kernel sees to this process's own children (spawn()), but not to theirs: a data loader's workers, or what was put
// into a session of its own. They are known by a worker's session or process group, so watch() each; and by a variable of
// their environment, so give it to all children. Make it while there is one thread only.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const { return pid_; }  // 0: there is none (no memory, no pids left); all goes on without
  // A child that leads a session of its own, until forget(): when all of its session is gone.
  void watch(pid_t leader) const { tell(leader); }
  void forget(pid_t leader) const { tell(-leader); }
  const std::string& variable() const { return variable_; }  // "TRAINER_AGENT"
  const std::string& value() const { return value_; }        // of this process alone

 private:
  [[noreturn]] void run(pid_t agent, int agent_pidfd, int leaders) const;
  void tell(pid_t leader) const;

  std::string variable_ = "TRAINER_AGENT";
  std::string value_;
  Descriptor leaders_;  // the writing end of its pipe
  pid_t pid_ = 0;
};

}  // namespace trainer::process
