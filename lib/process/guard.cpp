#include "process/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "core/clock.h"
#include "process/process.h"
#include "process/reaper.h"

namespace trainer::process {
namespace {

namespace fs = std::filesystem;

constexpr double kKillS = 10;  // what survives that is stuck in the kernel

// What the guard kills.
struct Marks {
  std::string variable;     // "NAME=value" of the environment
  std::set<pid_t> leaders;  // of sessions and process groups
};

bool has_variable(const fs::path& process, const std::string& variable) {
  std::ifstream in(process / "environ", std::ios::binary);
  const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(in), {});
  return environment.find('\0' + variable + '\0') != std::string::npos;
}

bool is_marked(const fs::path& process, const Marks& marks) {
  std::ifstream in(process / "stat");
  const std::string stat(std::istreambuf_iterator<char>(in), {});
  const size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0, group = 0, session = 0;
  fields >> state >> parent >> group >> session;
  if (state == 'Z' || state == 'X') return false;
  return marks.leaders.contains(group) || marks.leaders.contains(session) ||
         has_variable(process, marks.variable);
}

std::vector<pid_t> marked_processes(const Marks& marks) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (is_marked(it->path(), marks)) found.push_back(std::stoi(name));
  }
  return found;
}

// Takes what tell() has written so far.
void read_leaders(int pipe, std::set<pid_t>& leaders) {
  pid_t leader = 0;
  while (::read(pipe, &leader, sizeof leader) == sizeof leader) {
    if (leader > 0) {
      leaders.insert(leader);
    } else {
      leaders.erase(-leader);
    }
  }
}

}  // namespace

Guard::Guard() : value_(fmt::format("{}.{}", ::getpid(), monotonic_ns())) {
  const pid_t agent = ::getpid();
  const Descriptor pidfd = open_pidfd(agent);
  int ends[2];
  if (!pidfd.is_open() || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  const Descriptor read_end(ends[0]);
  leaders_ = Descriptor(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) run(agent, pidfd.get(), read_end.get());
  if (pid > 0) pid_ = pid;
}

Guard::~Guard() {
  if (pid_ > 0) kill_and_reap(pid_);
}

// The pipe holds thousands, and the guard reads them as they come.
void Guard::tell(pid_t leader) const {
  if (pid_ > 0) static_cast<void>(!::write(leaders_.get(), &leader, sizeof leader));
}

void Guard::run(pid_t agent, int agent_pidfd, int leaders) const {
  ::prctl(PR_SET_NAME, "trainer-guard");
  ::setsid();  // no Ctrl-C
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Nobody must wait for a pipe's or a socket's end because of this process.
  const int copy = ::fcntl(leaders, F_DUPFD, 2);  // not 0 or 1, should they have been closed
  ::dup2(agent_pidfd, 0);
  ::dup2(copy, 1);
  ::syscall(SYS_close_range, 2U, ~0U, 0U);
  try {
    Marks marks{variable_ + "=" + value_, {}};
    std::array<pollfd, 2> wait{{{0, POLLIN, 0}, {1, POLLIN, 0}}};
    while (::getppid() == agent) {
      if (::poll(wait.data(), wait.size(), -1) > 0 && wait[0].revents != 0) break;
      read_leaders(1, marks.leaders);
    }
    read_leaders(1, marks.leaders);
    // One that is killed may just have started another.
    for (const int64_t end_ns = monotonic_ns() + to_ns(kKillS); monotonic_ns() < end_ns;) {
      const std::vector<pid_t> left = marked_processes(marks);
      if (left.empty()) break;
      for (const pid_t pid : left) ::kill(pid, SIGKILL);
      ::usleep(1000);
    }
  } catch (const std::exception&) {  // nobody is left to tell
  }
  ::_exit(0);
}

}  // namespace trainer::process
