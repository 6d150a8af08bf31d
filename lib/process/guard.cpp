#include "process/guard.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <new>

#include "process/process.h"
#include "process/reaper.h"

namespace trainer::process {

Guard::Guard() {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  shared_ = new (memory) Shared();
  const pid_t agent = ::getpid();
  const Descriptor pidfd = open_pidfd(agent);
  if (!pidfd.is_open()) return;
  const pid_t pid = ::fork();
  if (pid == 0) watch(agent, pidfd.get(), *shared_);
  if (pid > 0) pid_ = pid;
}

Guard::~Guard() {
  if (pid_ > 0) kill_and_reap(pid_);
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

void Guard::add(pid_t leader) {
  if (shared_ == nullptr) return;
  for (std::atomic<pid_t>& slot : shared_->leaders) {
    pid_t none = 0;
    if (slot.compare_exchange_strong(none, leader)) return;
  }
}

void Guard::remove(pid_t leader) {
  if (shared_ == nullptr) return;
  for (std::atomic<pid_t>& slot : shared_->leaders) {
    pid_t expected = leader;
    if (slot.compare_exchange_strong(expected, 0)) return;
  }
}

void Guard::watch(pid_t agent, int agent_pidfd, const Shared& shared) {
  ::prctl(PR_SET_NAME, "trainer-guard");
  ::setsid();  // no Ctrl-C
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Nobody must wait for a pipe's or a socket's end because of this process.
  ::dup2(agent_pidfd, 0);
  ::syscall(SYS_close_range, 1U, ~0U, 0U);
  pollfd wait{0, POLLIN, 0};
  while (::getppid() == agent && ::poll(&wait, 1, -1) <= 0) {
  }
  for (const std::atomic<pid_t>& leader : shared.leaders) {
    if (const pid_t group = leader.load(); group > 1) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace trainer::process
