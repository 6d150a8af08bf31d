#include "process/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/clock.h"
#include "process/process.h"
#include "process/reaper.h"

namespace trainer::process {
namespace {

namespace fs = std::filesystem;

// Processes whose environment holds `entry` ("NAME=value").
std::vector<pid_t> processes_with(const std::string& entry) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(it->path() / "environ", std::ios::binary);
    const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(in), {});
    if (environment.find('\0' + entry + '\0') != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

Guard::Guard() : value_(fmt::format("{}.{}", ::getpid(), monotonic_ns())) {
  const pid_t agent = ::getpid();
  const Descriptor pidfd = open_pidfd(agent);
  if (!pidfd.is_open()) return;
  const pid_t pid = ::fork();
  if (pid == 0) watch(agent, pidfd.get());
  if (pid > 0) pid_ = pid;
}

Guard::~Guard() {
  if (pid_ > 0) kill_and_reap(pid_);
}

void Guard::watch(pid_t agent, int agent_pidfd) const {
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
  try {
    const std::string entry = variable_ + "=" + value_;
    for (int round = 0; round < 100; ++round) {  // one that is killed may just have started another
      const std::vector<pid_t> left = processes_with(entry);
      if (left.empty()) break;
      for (const pid_t pid : left) ::kill(pid, SIGKILL);
    }
  } catch (const std::exception&) {  // nobody is left to tell
  }
  ::_exit(0);
}

}  // namespace trainer::process
