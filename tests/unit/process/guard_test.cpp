#include "process/guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "process/stacks.h"
#include "temporary_directory.h"

namespace {

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE(
    "what a killed process's children started is killed, in sessions of their own too, and nothing else") {
  const TemporaryDirectory dir;
  const pid_t other = ::fork();
  if (other == 0) {
    ::execlp("sleep", "sleep", "100", nullptr);
    ::_exit(1);
  }
  const pid_t agent = ::fork();
  if (agent == 0) {
    trainer::process::Guard guard;
    ::setenv(guard.variable().c_str(), guard.value().c_str(), 1);
    ::setenv("DIRECTORY", dir.path.c_str(), 1);
    ::execlp("sh", "sh", "-c",
             "cd $DIRECTORY; sh -c 'echo $$ > tmp0; mv tmp0 0; exec sleep 100' & "
             "setsid sh -c 'echo $$ > tmp1; mv tmp1 1; exec sleep 100' & wait",
             nullptr);
    ::_exit(1);
  }
  const auto pid_in = [&](const char* name) {
    pid_t pid = 0;
    std::ifstream(dir.path / name) >> pid;
    return pid;
  };
  REQUIRE(eventually([&] { return pid_in("0") > 0 && pid_in("1") > 0; }));
  const pid_t child = pid_in("0"), child_in_session = pid_in("1");
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
  const auto is_gone = [](pid_t pid) {
    const char state = trainer::process::state_of(pid);
    return state == '?' || state == 'Z';
  };
  CHECK(eventually([&] { return is_gone(child); }));
  CHECK(eventually([&] { return is_gone(child_in_session); }));
  CHECK_FALSE(is_gone(other));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_CASE("what a killed process's child started is killed by its session, without any environment") {
  const TemporaryDirectory dir;
  const pid_t other = ::fork();
  if (other == 0) {
    ::setsid();
    ::pause();
    ::_exit(1);
  }
  const pid_t agent = ::fork();
  if (agent == 0) {
    trainer::process::Guard guard;
    const pid_t worker = ::fork();
    if (worker == 0) {
      ::setsid();
      ::setenv("DIRECTORY", dir.path.c_str(), 1);
      ::execlp("bash", "bash", "-c",
               "cd $DIRECTORY; set -m; "  // each in a process group of its own
               "env -i sh -c 'echo $$ > tmp0; mv tmp0 0; exec sleep 100' & "
               "env -i sh -c 'echo $$ > tmp1; mv tmp1 1; exec sleep 100' & wait",
               nullptr);
      ::_exit(1);
    }
    guard.watch(worker);
    guard.watch(other);
    guard.forget(other);
    ::pause();
    ::_exit(1);
  }
  const auto pid_in = [&](const char* name) {
    pid_t pid = 0;
    std::ifstream(dir.path / name) >> pid;
    return pid;
  };
  REQUIRE(eventually([&] { return pid_in("0") > 0 && pid_in("1") > 0; }));
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
  const auto is_gone = [](pid_t pid) {
    const char state = trainer::process::state_of(pid);
    return state == '?' || state == 'Z';
  };
  CHECK(eventually([&] { return is_gone(pid_in("0")); }));
  CHECK(eventually([&] { return is_gone(pid_in("1")); }));
  CHECK_FALSE(is_gone(other));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
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
