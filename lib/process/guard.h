#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace trainer::process {

// A process beside this one that outlives it, should it be killed, by just long enough to kill the process groups that
// it was told of. The kernel sees to this process's own children (spawn()), but not to theirs: a data loader's workers,
// for instance. Make it while there is one thread only.
class Guard {
 public:
  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const { return pid_; }  // 0: there is none (no memory, no pids left); all goes on without
  // The leader of a process group; remove it before its number can be another's. Beyond the first kMaxGroups no more
  // are guarded.
  void add(pid_t leader);
  void remove(pid_t leader);

 private:
  static constexpr size_t kMaxGroups = 1023;
  struct Shared {
    std::atomic<pid_t> leaders[kMaxGroups];
  };
  [[noreturn]] static void watch(pid_t agent, int agent_pidfd, const Shared& shared);

  Shared* shared_ = nullptr;
  pid_t pid_ = 0;
};

}  // namespace trainer::process
