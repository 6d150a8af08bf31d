#include "process/stacks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

using namespace trainer::process;

// Not static: their names must be in the executable's symbols.
namespace stacks_test {
__attribute__((noinline)) void rests_here() {
  for (;;) ::pause();
}
__attribute__((noinline)) void counts_here(std::atomic<uint64_t>& count) {
  for (;;) ++count;
}
}  // namespace stacks_test

namespace {

// A child that does `work` until the end of the scope.
struct Child {
  pid_t pid;
  template <class F>
  explicit Child(F&& work) : pid(::fork()) {
    if (pid == 0) {
      work();
      ::_exit(0);
    }
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

void wait_for_state(pid_t pid, char state) {
  for (int i = 0; i < 10'000 && state_of(pid) != state; ++i) ::usleep(1000);
  REQUIRE(state_of(pid) == state);
}

// Until the text has what is looked for: a child takes its time to get there.
std::string stacks_with(pid_t pid, const std::string& words) {
  std::string text;
  for (int i = 0; i < 100 && text.find(words) == std::string::npos; ++i) {
    if (i > 0) ::usleep(100'000);
    text = stacks_of(pid, 30);
  }
  return text;
}

size_t count_of(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the stack of a child that waits names its functions, innermost first") {
  const Child child([] { stacks_test::rests_here(); });
  const std::string text = stacks_with(child.pid, "stacks_test::rests_here()");
  INFO(text);
  CHECK(text.find("main thread " + std::to_string(child.pid) + " (process_test):\n  #0 ") == 0);
  const size_t pause = text.find("pause in libc.so.6"),
               ours = text.find("stacks_test::rests_here() in process_test");
  CHECK(pause < ours);
  CHECK(ours < text.find("main in process_test"));
  wait_for_state(child.pid, 'S');  // it goes on
}

TEST_CASE("a child that was stopped is seen where it stopped, and stays stopped") {
  const Child child([] { stacks_test::rests_here(); });
  wait_for_state(child.pid, 'S');
  ::kill(child.pid, SIGSTOP);
  wait_for_state(child.pid, 'T');
  for (int i = 0; i < 3; ++i) {
    const std::string text = stacks_of(child.pid, 30);
    INFO(text);
    CHECK(text.find("stopped by a signal (SIGCONT lets it go on)\nmain thread ") == 0);
    CHECK(text.find("stacks_test::rests_here()") != std::string::npos);
    wait_for_state(child.pid, 'T');
  }
  int status = 0;  // nothing is left for its parent to see but its own stop
  CHECK(::waitpid(child.pid, &status, WNOHANG) == 0);
  ::kill(child.pid, SIGCONT);
  wait_for_state(child.pid, 'S');
}

TEST_CASE("a child that runs goes on") {
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const Child child([&] {
    std::atomic<uint64_t> count = 0;
    std::thread teller([&] {  // tells it once it was asked
      char byte = 0;
      static_cast<void>(!::read(fds[0], &byte, 1));
      const uint64_t before = count;
      while (count == before) ::usleep(100);
      ::_exit(42);
    });
    stacks_test::counts_here(count);
  });
  CHECK(stacks_with(child.pid, "stacks_test::counts_here").find("stacks_test::counts_here") !=
        std::string::npos);
  CHECK(::write(fds[1], "x", 1) == 1);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(info.si_status == 42);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("threads with equal stacks are told once") {
  const Child child([] {
    for (int i = 0; i < 12; ++i) {
      std::thread([] {
        ::pthread_setname_np(::pthread_self(), "idler");
        stacks_test::rests_here();
      }).detach();
    }
    for (;;) ::usleep(1'000'000);
  });
  const std::string text = stacks_with(child.pid, "12 threads: ");
  INFO(text);
  CHECK(count_of(text, "stacks_test::rests_here()") == 1);
  CHECK(count_of(text, "(idler)") == 8);
  CHECK(count_of(text, "main thread") == 1);
}

TEST_CASE("a thread that the kernel does not stop is told with what it waits for") {
  const Child child([] {  // the parent of a vfork sleeps uninterruptibly until the child ends
    if (::vfork() == 0) {
      ::sleep(600);
      ::_exit(0);
    }
  });
  wait_for_state(child.pid, 'D');
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = stacks_of(child.pid, 0.4);
  INFO(text);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  CHECK(text.find("in uninterruptible sleep: in the kernel at ") != std::string::npos);
  wait_for_state(child.pid, 'D');
  std::ifstream in("/proc/" + std::to_string(child.pid) + "/task/" + std::to_string(child.pid) + "/children");
  pid_t grandchild = 0;
  if (in >> grandchild) ::kill(grandchild, SIGKILL);
}

TEST_CASE("why there are no stacks is told") {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(7);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(stacks_of(pid, 1) == "no stacks: the process is gone");
  int status = 0;
  CHECK(::waitpid(pid, &status, 0) == pid);  // still its parent's to learn
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(state_of(pid) == '?');
  CHECK(stacks_of(pid, 1) == "no stacks: there is no process " + std::to_string(pid));
}
