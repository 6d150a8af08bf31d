#include "process/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer::process {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    fail<SpecError>("launch: cannot make a pipe: {}\n  hint: raise the limit of open files (ulimit -n)",
                    std::strerror(errno));
  }
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

// Bits of CPUs or of NUMA nodes, in the form that the kernel reads.
class BitMask {
 public:
  explicit BitMask(const std::vector<int>& bits) {
    for (const int bit : bits) {
      const auto word = static_cast<size_t>(bit) / kWordBits;
      if (word >= words_.size()) words_.resize(word + 1);
      words_[word] |= 1UL << (static_cast<size_t>(bit) % kWordBits);
    }
  }
  bool empty() const { return words_.empty(); }
  const unsigned long* data() const { return words_.data(); }
  size_t size_bytes() const { return words_.size() * sizeof(unsigned long); }
  // The kernel takes the count of a memory policy's bits to be one too high.
  unsigned long max_node() const { return words_.size() * kWordBits + 1; }

 private:
  static constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> words_;
};

// Of linux/mempolicy.h, where the second is younger than the headers of some systems.
constexpr int kMpolPreferred = 1;
constexpr int kMpolPreferredMany = 5;  // Linux 5.15

struct ChildSetup {
  const char* file;
  char* const* argv;
  char* const* envp;
  int input, output, error;
  const SpawnOptions& options;
  const BitMask &cpus, &memory_nodes, &first_memory_node;
  pid_t parent;
};

// Memory is preferred to be near, not bound: a full node then slows a job and doesn't end it. errno.
int bind_self(const ChildSetup& setup) {
  int error = 0;
  if (!setup.cpus.empty() &&
      ::syscall(SYS_sched_setaffinity, 0, setup.cpus.size_bytes(), setup.cpus.data()) < 0) {
    error = errno;
  }
  const auto prefer = [](int policy, const BitMask& nodes) {
    return ::syscall(SYS_set_mempolicy, policy, nodes.data(), nodes.max_node()) == 0;
  };
  if (!setup.memory_nodes.empty() && !prefer(kMpolPreferredMany, setup.memory_nodes) &&
      !prefer(kMpolPreferred, setup.first_memory_node)) {
    error = errno;
  }
  return error;
}

// After vfork: the parent sleeps, and its memory is shared. Only system calls here.
[[noreturn]] void run_child(const ChildSetup& setup, volatile int* error, volatile int* binding_error) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != setup.parent) ::_exit(127);  // it died before the line above
  ::setsid();
  ::dup2(setup.input, 0);
  ::dup2(setup.output, 1);
  ::dup2(setup.error, 2);
  for (const int fd : setup.options.inherited_fds) ::fcntl(fd, F_SETFD, 0);
  *binding_error = bind_self(setup);
  ::signal(SIGPIPE, SIG_DFL);  // ignored signals, unlike handlers, survive exec
  ::sigprocmask(SIG_SETMASK, &setup.options.signal_mask, nullptr);
  ::execvpe(setup.file, setup.argv, setup.envp);
  *error = errno;
  ::_exit(127);
}

// vfork, not fork: the memory is shared and the parent sleeps until the exec, so that the exec's error comes
// back without a pipe. (posix_spawn has no PR_SET_PDEATHSIG.)
__attribute__((noinline)) pid_t vfork_and_run(const ChildSetup& setup, volatile int* error,
                                              volatile int* binding_error) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(setup, error, binding_error);
  return pid;
}

}  // namespace

Process spawn(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
              const SpawnOptions& options) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : env) variables.push_back(name + "=" + value);
  std::vector<char*> arguments, environment;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);

  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  const BitMask cpus(options.cpus), memory_nodes(options.memory_nodes);
  const BitMask first_memory_node(
      {options.memory_nodes.begin(), options.memory_nodes.begin() + (memory_nodes.empty() ? 0 : 1)});
  const ChildSetup setup{arguments[0],
                         arguments.data(),
                         environment.data(),
                         options.input >= 0 ? options.input : null.get(),
                         output.write.get(),
                         error.write.get(),
                         options,
                         cpus,
                         memory_nodes,
                         first_memory_node,
                         ::getpid()};
  volatile int exec_error = 0, binding_error = 0;
  Process process;
  process.pid = vfork_and_run(setup, &exec_error, &binding_error);
  if (process.pid < 0) {
    fail<SpecError>(
        "launch: cannot start a process: {}\n  hint: see ulimit -u and the container's pids limit",
        std::strerror(errno));
  }
  if (exec_error != 0) {
    ::waitpid(process.pid, nullptr, 0);
    fail<SpecError>("launch: cannot run {}: {}", argv[0], std::strerror(exec_error));
  }
  process.binding_error = binding_error;
  process.pidfd = open_pidfd(process.pid);
  if (!process.pidfd.is_open()) {
    const int reason = errno;
    ::kill(-process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    fail<SpecError>("launch: cannot watch process {}: {}; Linux 5.3 or newer is needed", process.pid,
                    std::strerror(reason));
  }
  process.output = std::move(output.read);
  process.error = std::move(error.read);
  return process;
}

// glibc has it since 2.36, but there without C linkage.
Descriptor open_pidfd(pid_t pid) {
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace trainer::process
