// In a signal handler only system calls and a few functions are safe: no allocation, no locks, no stdio. Everything that
// the handlers need is prepared before. The stack's symbols are the one liberty taken: dladdr takes the loader's lock, so
// the report is written without the stack first, and an alarm ends a process that hangs over it.
#include "report/crash.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <optional>
#include <string_view>
#include <typeinfo>

#include "core/demangle.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "report/worker_error.h"

namespace trainer::report {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMostFrames = 48;
constexpr unsigned kStackSeconds = 3;
constexpr size_t kAlternateStackBytes = 256 << 10;

// Text in fixed memory; what does not fit is left out.
template <size_t kSize>
class Text {
 public:
  Text& operator<<(std::string_view text) {
    for (const char c : text) {
      if (size_ < kSize) bytes_[size_++] = c;
    }
    return *this;
  }
  Text& operator<<(int64_t value) {
    if (value < 0) *this << "-";
    return number(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), 10);
  }
  Text& hex(uintptr_t value) {
    *this << "0x";
    return number(value, 16);
  }
  void clear() { size_ = 0; }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  Text& number(uint64_t value, unsigned base) {
    char digits[20];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[value % base];
    while ((value /= base) > 0);
    while (n > 0) *this << std::string_view(&digits[--n], 1);
    return *this;
  }
  char bytes_[kSize];
  size_t size_ = 0;
};

// A handler takes no argument of ours.
struct Crash {
  const ProgressPage* page = nullptr;
  char error_file[4096] = "";  // empty: none
  char temporary[4096] = "";
  std::atomic<pid_t> thread{0};  // that reports
  int signal = 0;
  Text<8192> what;  // of an exception that left its thread
  Text<16384> message;
  Text<32768> json;
};
Crash crash;

pid_t this_thread() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void append_json_string(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') crash.json << "\\";
    if (c == '\n') {
      crash.json << "\\n";
    } else {  // other bytes than ASCII might be no UTF-8
      crash.json << (byte >= 0x20 && byte < 0x7f ? std::string_view(&c, 1) : "?");
    }
  }
}

// torchelastic's form, as error_file.cpp writes it; whole or not at all.
void write_error_file() {
  if (crash.error_file[0] == '\0') return;
  crash.json.clear();
  crash.json << R"({"message":{"message":")";
  append_json_string(crash.message.view());
  crash.json << R"(","extraInfo":{"py_callstack":"","timestamp":")" << static_cast<int64_t>(::time(nullptr))
             << "\"";
  const int64_t step = crash.page->step.load(std::memory_order_relaxed);
  if (step > 0) crash.json << ",\"step\":" << step;
  crash.json << "}}}\n";
  const int fd = ::open(crash.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const bool whole = write_all(fd, crash.json.view());
  ::close(fd);
  if (whole) ::rename(crash.temporary, crash.error_file);
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV (segmentation fault)";
    case SIGBUS:
      return "SIGBUS (bus error)";
    case SIGFPE:
      return "SIGFPE (arithmetic error)";
    case SIGILL:
      return "SIGILL (illegal instruction)";
    default:
      return "SIGABRT (abort)";
  }
}

void describe(int signal, const siginfo_t& info) {
  if (!crash.what.view().empty()) {
    crash.message << crash.what.view();
  } else {
    crash.message << "killed by " << name_of(signal);
    if (info.si_code == SI_USER || info.si_code == SI_TKILL) {
      if (info.si_pid != ::getpid())
        crash.message << ", sent by process " << static_cast<int64_t>(info.si_pid);
    } else {
      crash.message << " at address ";
      crash.message.hex(reinterpret_cast<uintptr_t>(info.si_addr));
    }
  }
  char thread_name[17] = "?";
  ::prctl(PR_GET_NAME, thread_name);
  crash.message << "\nin thread " << static_cast<int64_t>(this_thread()) << " (" << thread_name
                << "), phase: " << to_string(crash.page->phase.load(std::memory_order_relaxed));
}

// Of this thread, from where the signal hit: without the handler's own frames.
__attribute__((noinline)) void append_stack() {
  void* frames[kMostFrames];
  const int count = ::backtrace(frames, kMostFrames);
  constexpr int kOwn = 3;  // this function, the handler, the signal's return
  for (int i = kOwn; i < count; ++i) {
    // A return address is behind its call, which may be the function's last instruction.
    const uintptr_t address = reinterpret_cast<uintptr_t>(frames[i]) - (i == kOwn ? 0 : 1);
    crash.message << "\n  #" << static_cast<int64_t>(i - kOwn) << " ";
    Dl_info symbol{};
    if (::dladdr(reinterpret_cast<void*>(address), &symbol) == 0 || symbol.dli_fname == nullptr) {
      crash.message.hex(address);
      continue;
    }
    const char* slash = std::strrchr(symbol.dli_fname, '/');
    const uintptr_t base =
        reinterpret_cast<uintptr_t>(symbol.dli_sname != nullptr ? symbol.dli_saddr : symbol.dli_fbase);
    if (symbol.dli_sname != nullptr) crash.message << symbol.dli_sname;
    crash.message << "+";
    crash.message.hex(address - base) << " in " << (slash != nullptr ? slash + 1 : symbol.dli_fname);
  }
  if (count == kMostFrames) crash.message << "\n  ...";
}

// With the default action, for this thread: it comes when the handler returns, where the fault was, so that a core dump
// shows that place.
void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  ::syscall(SYS_tgkill, ::getpid(), this_thread(), signal);
}

void on_alarm(int) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
  die_of(crash.signal);
}

void on_crash(int signal, siginfo_t* info, void*) {
  pid_t nobody = 0;
  if (!crash.thread.compare_exchange_strong(nobody, this_thread())) {
    if (nobody == this_thread()) die_of(signal);  // another signal over the report
    for (;;) ::pause();                           // another thread reports, and ends the process
  }
  crash.signal = signal;
  struct sigaction on_time_up {};
  on_time_up.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &on_time_up, nullptr);
  ::alarm(kStackSeconds);
  describe(signal, *info);
  write_error_file();
  append_stack();
  crash.message << "\n";
  write_error_file();
  static_cast<void>(write_all(STDERR_FILENO, crash.message.view()));
  die_of(signal);
}

// An exception that nobody catches; the stack is still that of the throw.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    crash.what << "std::terminate without an exception";
  } catch (const Error& error) {
    const int64_t step = crash.page->step;
    const int code = report_worker_error(error, step > 0 ? std::optional(step) : std::nullopt);
    std::fflush(nullptr);
    std::_Exit(code);
  } catch (const std::exception& error) {
    crash.what << "uncaught exception " << demangle(typeid(error).name()) << ": " << error.what();
  } catch (...) {
    crash.what << "uncaught exception of a type of its own";
  }
  std::abort();
}

}  // namespace

void report_crashes(const ProgressPage& page) {
  crash.page = &page;
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path != nullptr && std::strlen(path) + 16 < sizeof crash.error_file) {
    std::snprintf(crash.error_file, sizeof crash.error_file, "%s", path);
    std::snprintf(crash.temporary, sizeof crash.temporary, "%s.tmp%d", path, ::getpid());
  }
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // the first call loads the unwinder

  stack_t stack{};  // a stack that overflowed has no room for a handler
  stack.ss_size = kAlternateStackBytes;
  stack.ss_sp = ::mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED) ::sigaltstack(&stack, nullptr);

  for (const int signal : kSignals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(signal, &action, nullptr);
  }
  std::set_terminate(on_terminate);
}

}  // namespace trainer::report
