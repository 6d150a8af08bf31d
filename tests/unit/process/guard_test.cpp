#include "process/guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

namespace {

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A process that leads a group of its own, with a child in it.
pid_t start_group() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    if (::fork() == 0) ::pause();
    ::pause();
    ::_exit(0);
  }
  ::setpgid(pid, pid);
  return pid;
}

}  // namespace

TEST_CASE(
    "the groups of a process that is killed are killed, children included, but not those that were removed") {
  const pid_t guarded = start_group(), removed = start_group();
  const pid_t agent = ::fork();
  if (agent == 0) {
    trainer::process::Guard guard;
    guard.add(removed);
    guard.add(guarded);
    guard.remove(removed);
    ::pause();
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
  int status = 0;
  CHECK(eventually([&] { return ::waitpid(guarded, &status, WNOHANG) == guarded; }));
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(eventually([&] { return ::kill(-guarded, 0) != 0; }));  // its child too
  CHECK(::kill(-removed, 0) == 0);
  ::kill(-removed, SIGKILL);
  ::waitpid(removed, nullptr, 0);
}

TEST_CASE("a guard ends with its object") {
  pid_t pid = 0;
  {
    const trainer::process::Guard guard;
    pid = guard.pid();
    REQUIRE(pid > 0);
    CHECK(::kill(pid, 0) == 0);
  }
  CHECK(::kill(pid, 0) != 0);
}
