#include "launch/store_process.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "core/error.h"
#include "net/socket.h"

namespace trainer::launch {

StoreProcess::StoreProcess(EventLoop& loop, process::Reaper& reaper, const sigset_t& mask,
                           const std::string& host, bool now, std::function<void(const std::string&)> on_died)
    : loop_(loop), reaper_(reaper), mask_(mask), on_died_(std::move(on_died)) {
  net::ListeningSockets listening = net::listen_at(host, 0, "launch.master_addr");
  socket_ = std::move(listening.sockets.front());  // the store serves one
  endpoint_ = {host, listening.port};
  if (now) {
    start();
  } else {
    loop_.add(socket_.get(), EPOLLIN, [this](uint32_t) {
      loop_.remove(socket_.get());
      try {
        start();
      } catch (const Error& error) {
        on_died_(error.what());
      }
    });
  }
}

StoreProcess::~StoreProcess() {
  if (socket_.is_open()) loop_.remove(socket_.get());
  if (process_.pidfd.is_open()) loop_.remove(process_.pidfd.get());
  if (process_.pid > 0) process::kill_and_reap(process_.pid);
}

void StoreProcess::start() {
  std::map<std::string, std::string> env = inherited_environment();
  env["TRAINER_STORE_FD"] = std::to_string(socket_.get());
  process::SpawnOptions options;
  options.signal_mask = mask_;
  options.inherited_fds = {socket_.get()};
  process_ = process::spawn(self_command({"__store"}), env, options);
  socket_.reset();  // the process's alone: when it dies its clients know
  reaper_.spare(process_.pid);
  loop_.add(process_.pidfd.get(), EPOLLIN, [this](uint32_t) { on_exit(); });
}

void StoreProcess::on_exit() {
  loop_.remove(process_.pidfd.get());
  process_.pidfd.reset();
  int status = 0;
  ::waitpid(std::exchange(process_.pid, 0), &status, 0);
  std::array<char, 4096> said{};
  const ssize_t n = ::read(process_.error.get(), said.data(), said.size());
  const std::string how = WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                              : fmt::format("exit code {}", WEXITSTATUS(status));
  on_died_(fmt::format("the process that serves the job's store ended: {}{}{}", how, n > 0 ? "\n" : "",
                       std::string(said.data(), static_cast<size_t>(n > 0 ? n : 0))));
}

}  // namespace trainer::launch
