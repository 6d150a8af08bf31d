#include "report/crash.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "report/error_file.h"
#include "temporary_directory.h"

using namespace trainer;
using namespace trainer::report;

// Not static: their names must be among the executable's symbols.
namespace crash_test {
__attribute__((noinline)) void writes_to(volatile int* address) {
  *address = 1;
}
// NOLINTNEXTLINE(misc-no-recursion)
__attribute__((noinline)) int recurses(volatile char* above) {
  if (*above == 'x') return 0;
  volatile char room[512];
  room[0] = *above;
  return recurses(room) + room[0];
}
}  // namespace crash_test

namespace {

struct End {
  int status = 0;
  std::optional<ErrorReport> report;
  std::string standard_error;
  bool killed_by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
  bool says(const std::string& words) const {
    return report && report->message.find(words) != std::string::npos;
  }
};

// How a child that reports crashes ends by `work`.
End end_of(const std::function<void()>& work, bool with_error_file = true) {
  const TemporaryDirectory dir;
  const std::string error_file = dir.path / "error.json", standard_error = dir.path / "stderr";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      ::signal(signal, SIG_DFL);  // Catch's handlers
    ::dup2(::open(standard_error.c_str(), O_CREAT | O_WRONLY, 0600), 2);
    ::unsetenv("TORCHELASTIC_ERROR_FILE");
    if (with_error_file) ::setenv("TORCHELASTIC_ERROR_FILE", error_file.c_str(), 1);
    static ProgressPage page;
    page.step = 312;
    page.phase = Phase::kForward;
    report_crashes(page);
    work();
    ::_exit(0);
  }
  End end;
  ::waitpid(pid, &end.status, 0);
  end.report = read_error_file(error_file);
  end.standard_error = read_file(standard_error);
  if (with_error_file) CHECK(std::distance(std::filesystem::directory_iterator(dir.path), {}) == 2);
  UNSCOPED_INFO(end.standard_error);
  return end;
}

// What the compiler must not see through.
template <class T>
T opaque(T value) {
  volatile T hidden = value;
  return hidden;
}

int* bad_address() {
  return reinterpret_cast<int*>(opaque<uintptr_t>(0x10));
}

}  // namespace

TEST_CASE("a segmentation fault is reported with address, step, phase and stack, and kills") {
  const End end = end_of([] { crash_test::writes_to(bad_address()); });
  CHECK(end.killed_by(SIGSEGV));
  REQUIRE(end.report);
  CHECK(end.report->message.find("killed by SIGSEGV (segmentation fault) at address 0x10\nin thread ") == 0);
  CHECK(end.says("(report_test), phase: forward\n  #0 crash_test::writes_to(int volatile*)+0x"));
  CHECK(end.says(" in report_test\n  #1 "));
  CHECK(end.report->step == 312);
  CHECK(end.report->timestamp_s > 1.6e9);
  CHECK(end.standard_error.find("killed by SIGSEGV (segmentation fault) at address 0x10") == 0);
  CHECK(end.standard_error.find("_ZN10crash_test9writes_toEPVi") != std::string::npos);
}

TEST_CASE("without an error file the report is on standard error") {
  const End end = end_of([] { crash_test::writes_to(bad_address()); }, false);
  CHECK(end.killed_by(SIGSEGV));
  CHECK(end.standard_error.find("killed by SIGSEGV (segmentation fault) at address 0x10") == 0);
}

TEST_CASE("a stack overflow is reported") {
  const End end = end_of([] {
    char byte = 0;
    crash_test::recurses(&byte);
  });
  CHECK(end.killed_by(SIGSEGV));
  CHECK(end.says("killed by SIGSEGV"));
  CHECK(end.says("crash_test::recurses"));
}

TEST_CASE("a crash in another thread is reported with the thread's name and stack") {
  const End end = end_of([] {
    std::thread([] {
      ::pthread_setname_np(::pthread_self(), "reader");
      crash_test::writes_to(bad_address());
    }).join();
  });
  CHECK(end.killed_by(SIGSEGV));
  CHECK(end.says("(reader), phase: forward\n  #0 crash_test::writes_to"));
}

TEST_CASE("of threads that crash at the same time one reports") {
  const End end = end_of([] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([] { crash_test::writes_to(bad_address()); });
    for (std::thread& thread : threads) thread.join();
  });
  CHECK(end.killed_by(SIGSEGV));
  CHECK(end.says("killed by SIGSEGV"));
  CHECK(end.standard_error.find("killed by", 1) == std::string::npos);
}

#ifndef __SANITIZE_ADDRESS__  // which has a malloc of its own
TEST_CASE("a crash inside malloc is reported: the report needs no memory") {
  const End end = end_of([] {
    std::thread([] {}).join();  // from now on malloc takes its lock
    auto* at = static_cast<volatile char*>(std::malloc(opaque<size_t>(1000)));
    const auto* end = static_cast<volatile char*>(::sbrk(0));
    while (at != end) *at++ = static_cast<char>(0xff);  // all of the heap's book-keeping behind it
    for (int i = 0; i < 100; ++i) static_cast<void>(opaque(std::malloc(120'000)));
  });
  CHECK(end.killed_by(SIGABRT));
  CHECK(end.says("killed by SIGABRT (abort)\nin thread "));
  CHECK(end.says(" in libc.so.6"));
}
#endif

TEST_CASE("a signal from outside is told with its sender") {
  const pid_t parent = ::getpid();
  const End end = end_of([&] {
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      ::kill(self, SIGBUS);
      ::_exit(0);
    }
    for (;;) ::pause();
  });
  CHECK(end.killed_by(SIGBUS));
  CHECK(end.says("killed by SIGBUS (bus error), sent by process "));
  CHECK_FALSE(end.says("process " + std::to_string(parent)));
}

TEST_CASE("an arithmetic error and an illegal instruction are reported") {
  CHECK(end_of([] { ::raise(SIGFPE); }).says("killed by SIGFPE (arithmetic error)\n"));
  CHECK(end_of([] { ::raise(SIGILL); }).says("killed by SIGILL (illegal instruction)\n"));
}

TEST_CASE("an exception that leaves a thread is reported by type and message") {
  const End end =
      end_of([] { std::thread([] { throw std::out_of_range("row \"7\"\n\tof \xff\\"); }).join(); });
  CHECK(end.killed_by(SIGABRT));
  CHECK(end.says("uncaught exception std::out_of_range: row \"7\"\n?of ?\\\nin thread "));
  CHECK(end.report->step == 312);
  CHECK(
      end_of([] { std::thread([] { throw 7; }).join(); }).says("uncaught exception of a type of its own\n"));
  CHECK(end_of([] { std::terminate(); }).says("std::terminate without an exception\n"));
}

TEST_CASE("an error of ours that leaves a thread ends the process with its code") {
  const End end = end_of([] { std::thread([] { fail<DataError>("train.tsv:7: 4 columns"); }).join(); });
  REQUIRE(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == 3);
  REQUIRE(end.report);
  CHECK(end.report->message == "data error: train.tsv:7: 4 columns");
  CHECK(end.report->step == 312);
}

TEST_CASE("a signal that somebody else handles is left to him") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGFPE, [](int) { ::_exit(9); });
    static ProgressPage page;
    report_crashes(page);
    ::raise(SIGFPE);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(WEXITSTATUS(status) == 9);
}
