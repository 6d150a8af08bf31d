// ptrace to stop the threads; elfutils' libdw, loaded when needed, to unwind and to name. The threads go on as soon as
// their return addresses are known; names are found afterwards.
#include "process/stacks.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/demangle.h"

namespace trainer::process {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFrames = 40;
constexpr size_t kMostNamed = 8;  // threads, in the head of those with equal stacks

// libdw's functions.
struct Libdw {
  decltype(&dwfl_begin) begin;
  decltype(&dwfl_end) end;
  decltype(&dwfl_linux_proc_find_elf) find_elf;
  decltype(&dwfl_linux_proc_report) report;
  decltype(&dwfl_report_end) report_end;
  decltype(&dwfl_linux_proc_attach) attach;
  decltype(&dwfl_getthread_frames) frames;
  decltype(&dwfl_frame_pc) frame_pc;
  decltype(&dwfl_addrmodule) module_at;
  decltype(&dwfl_module_info) module_info;
  decltype(&dwfl_module_addrinfo) symbol_at;
  decltype(&dwfl_errno) error_number;
  decltype(&dwfl_errmsg) error_message;
  std::string missing;  // why it can't be used

  Libdw() {
    void* library = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      missing = fmt::format("no stacks: {}; hint: install elfutils' libdw (Debian: libdw1)", ::dlerror());
      return;
    }
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) missing = fmt::format("no stacks: this machine's libdw.so.1 has no {}", name);
    };
    load(begin, "dwfl_begin");
    load(end, "dwfl_end");
    load(find_elf, "dwfl_linux_proc_find_elf");
    load(report, "dwfl_linux_proc_report");
    load(report_end, "dwfl_report_end");
    load(attach, "dwfl_linux_proc_attach");
    load(frames, "dwfl_getthread_frames");
    load(frame_pc, "dwfl_frame_pc");
    load(module_at, "dwfl_addrmodule");
    load(module_info, "dwfl_module_info");
    load(symbol_at, "dwfl_module_addrinfo");
    load(error_number, "dwfl_errno");
    load(error_message, "dwfl_errmsg");
  }
};

const Libdw& libdw() {
  static const Libdw library;
  return library;
}

struct Thread {
  pid_t id = 0;
  std::string name;
  bool attached = false;
  bool stopped = false;
  int signal = 0;  // that it was about to get
  std::string why_none;
  std::vector<Dwarf_Addr> addresses;  // innermost first, each inside its call
};

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<pid_t> thread_ids(pid_t pid) {
  std::vector<pid_t> ids;
  std::error_code error;
  for (fs::directory_iterator task(fmt::format("/proc/{}/task", pid), error), end; !error && task != end;
       task.increment(error)) {
    const std::string name = task->path().filename();
    pid_t id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    ids.push_back(id);
  }
  std::sort(ids.begin(),
            ids.end());  // the main thread comes first, whose number is the least unless numbers wrapped
  std::stable_partition(ids.begin(), ids.end(), [&](pid_t id) { return id == pid; });
  return ids;
}

char thread_state(pid_t pid, pid_t id) {
  const std::string stat = first_line(fmt::format("/proc/{}/task/{}/stat", pid, id));
  const size_t end_of_name = stat.rfind(')');
  return end_of_name != std::string::npos && end_of_name + 2 < stat.size() ? stat[end_of_name + 2] : '?';
}

// What the kernel says of a thread that can't be stopped.
std::string kernel_state(pid_t pid, pid_t id) {
  const fs::path task = fmt::format("/proc/{}/task/{}", pid, id);
  const char state = thread_state(pid, id);
  const std::string place = first_line(task / "wchan");
  const std::string call = first_line(task / "syscall");
  return fmt::format("{}: in the kernel at {}, system call {}",
                     state == 'D' ? "in uninterruptible sleep" : fmt::format("state {}", state),
                     place.empty() || place == "0" ? "?" : place,
                     call.empty() ? "?" : call.substr(0, call.find(' ')));
}

// The process's threads, stopped while it lives. Only the thread that made it may use it.
class StoppedThreads {
 public:
  StoppedThreads(pid_t pid, int64_t deadline_ns) : pid_(pid) {
    // Threads may be born meanwhile, of those that are not stopped yet.
    while (seize_new() && monotonic_ns() < deadline_ns) wait_for_all(deadline_ns);
  }
  ~StoppedThreads() { release(); }
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  std::vector<Thread>& threads() { return threads_; }
  // A thread that never stopped is released by the kernel when the calling thread ends.
  void release() {
    for (Thread& thread : threads_) {
      if (thread.stopped) ::ptrace(PTRACE_DETACH, thread.id, nullptr, thread.signal);
      thread.stopped = false;
    }
  }

 private:
  bool seize_new() {
    const size_t before = threads_.size();
    for (const pid_t id : thread_ids(pid_)) {
      if (std::any_of(threads_.begin(), threads_.end(), [&](const Thread& t) { return t.id == id; }))
        continue;
      Thread thread;
      thread.id = id;
      thread.name = first_line(fmt::format("/proc/{}/task/{}/comm", pid_, id));
      thread.attached = ::ptrace(PTRACE_SEIZE, id, nullptr, nullptr) == 0;
      if (!thread.attached) {
        thread.why_none =
            fmt::format("cannot be traced: {}{}; {}", std::strerror(errno),
                        errno == EPERM ? " (another debugger, or a container without ptrace)" : "",
                        kernel_state(pid_, id));
      }
      // Unlike SIGSTOP it leaves no trace: a process that was stopped stays so, one that ran goes on.
      if (thread.attached) ::ptrace(PTRACE_INTERRUPT, id, nullptr, nullptr);
      threads_.push_back(std::move(thread));
    }
    return threads_.size() > before;
  }

  void wait_for_all(int64_t deadline_ns) {
    for (Thread& thread : threads_) {
      while (thread.attached && !thread.stopped) {
        // Without WEXITED: how the process ends is for its parent to learn, who may be another thread of this one.
        siginfo_t info{};
        const bool known =
            ::waitid(P_PID, static_cast<id_t>(thread.id), &info, WSTOPPED | WNOHANG | __WALL) == 0;
        if (known && info.si_pid == thread.id) {
          thread.stopped = true;
          // Any stop will do; the signal of one that is not ours is passed on at the end.
          if (info.si_status >> 8 == 0) thread.signal = info.si_status;
        } else if (!known || thread_state(pid_, thread.id) == 'Z') {
          thread.attached = false;
          thread.why_none = "ended meanwhile";
        } else if (monotonic_ns() >= deadline_ns) {
          thread.why_none = kernel_state(pid_, thread.id);
          break;
        } else {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
      }
    }
  }

  pid_t pid_;
  std::vector<Thread> threads_;
};

// A file that was replaced on the disk since would be looked for at symbol servers.
int find_elf(Dwfl_Module* module, void** userdata, const char* name, Dwarf_Addr base, char** file,
             Elf** elf) {
  if (std::string_view(name).ends_with("(deleted)")) return -1;
  return libdw().find_elf(module, userdata, name, base, file, elf);
}

// Nor are separate debug files looked for: they take long and may be far away.
int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word,
                      char**) {
  return -1;
}

// The modules of a process, and the unwinder.
class Unwinder {
 public:
  explicit Unwinder(pid_t pid) : dwfl_(libdw().begin(&kCallbacks), libdw().end) {
    if (dwfl_ == nullptr || libdw().report(dwfl_.get(), pid) != 0 ||
        libdw().report_end(dwfl_.get(), nullptr, nullptr) != 0 ||
        libdw().attach(dwfl_.get(), pid, /*assume_ptrace_stopped=*/true) < 0) {
      const char* message = libdw().error_message(libdw().error_number());
      fault_ = fmt::format("no stacks: {}", message != nullptr ? message : "the process is gone");
    }
  }
  const std::string& fault() const { return fault_; }

  void unwind(Thread& thread, int64_t deadline_ns) const {
    struct Walk {
      Thread& thread;
      int64_t deadline_ns;
    } walk{thread, deadline_ns};
    libdw().frames(
        dwfl_.get(), thread.id,
        [](Dwfl_Frame* frame, void* argument) {
          auto& [thread, deadline_ns] = *static_cast<Walk*>(argument);
          Dwarf_Addr address = 0;
          bool is_activation = false;
          if (!libdw().frame_pc(frame, &address, &is_activation)) return static_cast<int>(DWARF_CB_ABORT);
          // A return address is behind its call, which may be the function's last instruction.
          thread.addresses.push_back(is_activation ? address : address - 1);
          const bool go_on = thread.addresses.size() < kMostFrames && monotonic_ns() < deadline_ns;
          return static_cast<int>(go_on ? DWARF_CB_OK : DWARF_CB_ABORT);
        },
        &walk);
    if (thread.addresses.empty()) thread.why_none = "its stack cannot be read";
  }

  // "at::native::addmm(...) in libtorch_cpu.so"
  const std::string& name(Dwarf_Addr address) {
    std::string& name = names_[address];
    if (!name.empty()) return name;
    Dwfl_Module* module = libdw().module_at(dwfl_.get(), address);
    if (module == nullptr) return name = fmt::format("{:#x}", address);
    Dwarf_Addr start = 0;
    const std::string path =
        libdw().module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
    const std::string file = path.substr(path.rfind('/') + 1);
    GElf_Off offset = 0;
    GElf_Sym symbol{};
    const char* found = libdw().symbol_at(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
    // Without a size it is only the nearest symbol that is exported.
    if (found != nullptr && offset < symbol.st_size)
      return name = fmt::format("{} in {}", demangle(found), file);
    return name = fmt::format("{:#x} in {}", address - start, file);
  }

 private:
  static constexpr Dwfl_Callbacks kCallbacks{find_elf, find_no_debuginfo, nullptr, nullptr};
  std::unique_ptr<Dwfl, decltype(&dwfl_end)> dwfl_;
  std::string fault_;
  std::map<Dwarf_Addr, std::string> names_;
};

std::string head(const std::vector<const Thread*>& equal, pid_t pid) {
  if (equal.size() == 1) {
    const Thread& thread = *equal.front();
    return fmt::format("{} {} ({})", thread.id == pid ? "main thread" : "thread", thread.id, thread.name);
  }
  std::string list;
  for (size_t i = 0; i < std::min(equal.size(), kMostNamed); ++i) {
    list += fmt::format("{}{} ({})", i == 0 ? "" : ", ", equal[i]->id, equal[i]->name);
  }
  return fmt::format("{} threads: {}{}", equal.size(), list, equal.size() > kMostNamed ? ", ..." : "");
}

std::string text_of(const std::vector<Thread>& threads, Unwinder& unwinder, pid_t pid) {
  std::vector<std::pair<std::string, std::vector<const Thread*>>> groups;  // by stack, in order
  for (const Thread& thread : threads) {
    std::string stack;
    for (size_t i = 0; i < thread.addresses.size(); ++i) {
      stack += fmt::format("\n  #{:<2} {}", i, unwinder.name(thread.addresses[i]));
    }
    if (thread.addresses.size() == kMostFrames) stack += "\n  ...";
    if (stack.empty()) stack = " " + thread.why_none;
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == stack; });
    if (same != groups.end()) {
      same->second.push_back(&thread);
    } else {
      groups.push_back({stack, {&thread}});
    }
  }
  std::string text;
  std::error_code error;
  if (fs::read_symlink(fmt::format("/proc/{}/exe", pid), error).filename().string().starts_with("python")) {
    text = "native frames (Python's own are not shown)\n";
  }
  for (const auto& [stack, equal] : groups) text += fmt::format("{}:{}\n", head(equal, pid), stack);
  return text;
}

std::string look(pid_t pid, int64_t now_ns, int64_t deadline_ns) {
  if (!libdw().missing.empty()) return libdw().missing;
  const bool was_stopped = state_of(pid) == 'T';
  StoppedThreads stopped(pid, now_ns + (deadline_ns - now_ns) / 2);
  if (stopped.threads().empty()) return fmt::format("no stacks: there is no process {}", pid);
  Unwinder unwinder(pid);
  if (!unwinder.fault().empty()) return unwinder.fault();
  for (Thread& thread : stopped.threads()) {
    if (thread.stopped) unwinder.unwind(thread, deadline_ns);
  }
  stopped.release();
  const std::string text = text_of(stopped.threads(), unwinder, pid);
  return was_stopped ? "stopped by a signal (SIGCONT lets it go on)\n" + text : text;
}

}  // namespace

char state_of(pid_t pid) {
  return thread_state(pid, pid);
}

std::string stacks_of(pid_t pid, double timeout_s) {
  std::string text;
  // ptrace binds to a thread: when this one ends the kernel lets go of what it still holds.
  std::thread([&] {
    try {
      const int64_t now_ns = monotonic_ns();
      text = look(pid, now_ns, now_ns + to_ns(timeout_s));
    } catch (const std::exception& error) {
      text = fmt::format("no stacks: {}", error.what());
    }
  }).join();
  return text;
}

}  // namespace trainer::process
