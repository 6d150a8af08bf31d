#include "process/reaper.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "process/process.h"

namespace trainer::process {
namespace {

std::vector<pid_t> children_of_main_thread() {
  std::ifstream in(fmt::format("/proc/self/task/{}/children", ::getpid()));
  return {std::istream_iterator<pid_t>(in), std::istream_iterator<pid_t>()};
}

}  // namespace

SignalMask::SignalMask(const std::vector<int>& signals) {
  ::sigemptyset(&handled_);
  for (const int signal : signals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&handled_, signal);
  }
  ::sigprocmask(SIG_BLOCK, &handled_, &old_);
  pipe_action_ = ::signal(SIGPIPE, SIG_IGN);  // `trainer run | head` ends the output, not the job
}

SignalMask::~SignalMask() {
  unblock();
  ::signal(SIGPIPE, pipe_action_);
}

void kill_and_reap(pid_t pid) {
  const Descriptor pidfd = open_pidfd(pid);
  ::kill(pid, SIGKILL);
  pollfd wait{pidfd.get(), POLLIN, 0};
  ::poll(&wait, 1, 1000);
  ::waitpid(pid, nullptr, WNOHANG);
}

Reaper::Reaper() : other_children_(children_of_main_thread()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void Reaper::end(const std::vector<pid_t>& leaders) const {
  for (const pid_t pid : leaders) ::kill(-pid, SIGKILL);
  for (const pid_t pid : leaders) kill_and_reap(pid);
  for (int round = 0; round < 100; ++round) {  // a killed orphan's children become orphans
    std::vector<pid_t> orphans = children_of_main_thread();
    std::erase_if(orphans, [&](pid_t pid) {
      return std::count(other_children_.begin(), other_children_.end(), pid) > 0;
    });
    if (orphans.empty()) break;
    for (const pid_t pid : orphans) kill_and_reap(pid);
  }
}

}  // namespace trainer::process
