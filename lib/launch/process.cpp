#include "launch/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer::launch {
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

struct ChildSetup {
  const char* file;
  char* const* argv;
  char* const* envp;
  int input, output, error, inherited_fd;
  const sigset_t* mask;
  pid_t parent;
};

// After vfork: the parent sleeps, and its memory is shared. Only system calls here.
[[noreturn]] void run_child(const ChildSetup& setup, volatile int* error) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != setup.parent) ::_exit(127);  // it died before the line above
  ::setsid();
  ::dup2(setup.input, 0);
  ::dup2(setup.output, 1);
  ::dup2(setup.error, 2);
  if (setup.inherited_fd >= 0) ::fcntl(setup.inherited_fd, F_SETFD, 0);
  ::signal(SIGPIPE, SIG_DFL);  // ignored signals, unlike handlers, survive exec
  ::sigprocmask(SIG_SETMASK, setup.mask, nullptr);
  ::execvpe(setup.file, setup.argv, setup.envp);
  *error = errno;
  ::_exit(127);
}

// vfork, not fork: the memory is shared and the parent sleeps until the exec, so that the exec's error comes
// back without a pipe. (posix_spawn has no PR_SET_PDEATHSIG.)
__attribute__((noinline)) pid_t vfork_and_run(const ChildSetup& setup, volatile int* error) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(setup, error);
  return pid;
}

}  // namespace

Process spawn(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
              const sigset_t& signal_mask, int inherited_fd) {
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
  const ChildSetup setup{arguments[0], arguments.data(),   environment.data(),
                         null.get(),   output.write.get(), error.write.get(),
                         inherited_fd, &signal_mask,       ::getpid()};
  volatile int exec_error = 0;
  Process process;
  process.pid = vfork_and_run(setup, &exec_error);
  if (process.pid < 0) {
    fail<SpecError>(
        "launch: cannot start a process: {}\n  hint: see ulimit -u and the container's pids limit",
        std::strerror(errno));
  }
  if (exec_error != 0) {
    ::waitpid(process.pid, nullptr, 0);
    fail<SpecError>("launch: cannot run {}: {}", argv[0], std::strerror(exec_error));
  }
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

Descriptor listen_on(int64_t port, bool loopback_only) {
  // Dual-stack on all interfaces; a node without IPv6 has only the other.
  Descriptor socket(::socket(loopback_only ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = !loopback_only && socket.is_open();
  if (!socket.is_open()) socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // TIME_WAIT of the last job
  sockaddr_in v4_address{};
  v4_address.sin_family = AF_INET;
  v4_address.sin_port = htons(static_cast<uint16_t>(port));
  v4_address.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 v6_address{};
  v6_address.sin6_family = AF_INET6;
  v6_address.sin6_port = htons(static_cast<uint16_t>(port));
  v6_address.sin6_addr = in6addr_any;
  if (v6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const int bound =
      v6 ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v6_address), sizeof v6_address)
         : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&v4_address), sizeof v4_address);
  if (bound != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    fail<DistributedError>(
        "launch.master_port: cannot listen on port {}: {}\n  hint: another job may hold it (ss -ltnp "
        "'sport = :{}'); choose another port, or 0 for a free one on one node",
        port, std::strerror(errno), port);
  }
  return socket;
}

int64_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);  // the port is at the same place in both
  return ntohs(v6->sin6_port);
}

}  // namespace trainer::launch
