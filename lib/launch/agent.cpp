#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "hardware/cgroup.h"
#include "launch/console.h"
#include "launch/failure.h"
#include "launch/output.h"
#include "net/socket.h"
#include "process/process.h"
#include "process/reaper.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kSecondNs = 1'000'000'000;
// A rank that lost its peers may be seen before the peer that failed: wait for the cause before stopping
// everyone.
constexpr int64_t kSettleNs = kSecondNs / 2;
constexpr int64_t kUnkillableNs = 10 * kSecondNs;  // a process stuck in the kernel survives SIGKILL
constexpr size_t kPumpBytes = 256 << 10;           // of one stream before the others have their turn

struct Worker {
  process::Process process;
  WorkerOutput output, error;
  std::optional<Exit> exit;
};

class Agent {
 public:
  explicit Agent(const WorkerPlan& plan) : plan_(plan) {}
  ~Agent() { end_processes(); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void start(const process::SignalMask& signals);
  void watch();
  int finish();
  // Waits for a slow reader, but not when told to stop.
  void write_output() { console_.finish(interrupted_by_ != 0 ? 1000 : -1); }

 private:
  enum class Phase { kRunning, kSettling, kStopping, kKilling, kGivenUp };
  enum class Source : uint32_t { kSignal, kExit, kStream, kStreams, kConsole };

  void add(int epoll, int fd, uint32_t events, Source source, size_t index = 0);
  void start_worker(int64_t local_rank, int store_fd, const sigset_t& mask);
  void flush_console();
  void on_signal();
  void on_exit(Worker& worker);
  void on_streams();
  void on_deadline();
  void stop_workers();
  void kill_workers();
  void signal_workers(int signal);
  void end_processes();
  void drain(WorkerOutput& output);
  void print(const std::string& text) { console_.line(2, "", text); }
  int64_t rank_of(const Worker& worker) const;

  const WorkerPlan& plan_;
  Assignment assignment_;
  Console console_;
  Descriptor epoll_, streams_, signals_;
  int blocked_fd_ = -1;  // the console's, when its reader is behind; then the streams are not read
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t running_ = 0;
  Phase phase_ = Phase::kRunning;
  int64_t deadline_ns_ = kNever;  // of the phase
  int interrupted_by_ = 0;
  bool ended_ = false;  // all processes are: their numbers may be others' by now
  process::Reaper reaper_;
  int64_t oom_kills_before_ = hardware::read_cgroup_limits().oom_kills;
};

void Agent::add(int epoll, int fd, uint32_t events, Source source, size_t index) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << 32 | index;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    fail<SpecError>("launch: cannot watch a worker: {}", std::strerror(errno));
  }
}

// Before closing: closing alone leaves a descriptor in the epoll set while a child between vfork and exec has
// a copy.
void remove(int epoll, int fd) {
  ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

int64_t Agent::rank_of(const Worker& worker) const {
  const auto same = [&](const auto& other) { return other.get() == &worker; };
  return plan_.node_rank * plan_.nproc +
         (std::find_if(workers_.begin(), workers_.end(), same) - workers_.begin());
}

void raise_file_limit(int64_t nproc) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(64 + 8 * nproc);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);  // too low still: spawn says so
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void Agent::start(const process::SignalMask& signals) {
  raise_file_limit(plan_.nproc);
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  streams_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  signals_ = Descriptor(::signalfd(-1, &signals.handled(), SFD_CLOEXEC | SFD_NONBLOCK));
  add(epoll_.get(), signals_.get(), EPOLLIN, Source::kSignal);
  add(epoll_.get(), streams_.get(), EPOLLIN, Source::kStreams);

  const bool hosts_store = plan_.node_rank == 0;
  Descriptor store;
  assignment_ = {0,
                 plan_.node_rank,
                 plan_.max_nodes,
                 plan_.node_rank * plan_.nproc,
                 plan_.max_nodes * plan_.nproc,
                 plan_.endpoints[0].host,
                 plan_.endpoints[0].port};
  if (hosts_store) {
    store = net::listen_on(assignment_.master_port,
                           plan_.max_nodes == 1 && (assignment_.master_addr == "127.0.0.1" ||
                                                    assignment_.master_addr == "localhost"));
    assignment_.master_port = net::port_of(store);
  }
  for (int64_t i = 0; i < plan_.nproc; ++i) {
    // Only rank 0 holds the socket, so that when it dies its peers' connections are refused at once.
    start_worker(i, i == 0 && store.is_open() ? store.get() : -1, signals.old());
    if (i == 0) store.reset();
  }
}

void Agent::start_worker(int64_t local_rank, int store_fd, const sigset_t& mask) {
  const fs::path log_dir = worker_log_dir(plan_, assignment_, local_rank);
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (error) {
    fail<SpecError>("launch: cannot make the log directory {}: {}\n  hint: job.output_dir must be writable",
                    log_dir.string(), error.message());
  }
  fs::remove(log_dir / "error.json", error);  // an earlier run's
  std::map<std::string, std::string> env = worker_environment(plan_, assignment_, local_rank);
  env["TRAINER_CONSOLE"] = console_.is_terminal() ? "terminal" : "plain";
  if (console_.is_terminal()) env["COLUMNS"] = std::to_string(console_.columns());
  if (store_fd >= 0) env["TRAINER_STORE_FD"] = std::to_string(store_fd);

  process::SpawnOptions options{.signal_mask = mask, .inherited_fds = {}, .cpus = {}, .memory_nodes = {}};
  if (store_fd >= 0) options.inherited_fds.push_back(store_fd);
  process::Process child = process::spawn(plan_.argv, env, options);
  const int64_t rank = plan_.node_rank * plan_.nproc + local_rank;
  const std::string prefix = plan_.nproc * plan_.max_nodes > 1 ? fmt::format("[{}] ", rank) : "";
  try {
    WorkerOutput output(std::move(child.output), 1, log_dir / "stdout.log", prefix, rank == 0);
    WorkerOutput errors(std::move(child.error), 2, log_dir / "stderr.log", prefix, false);
    workers_.push_back(std::make_unique<Worker>(
        Worker{std::move(child), std::move(output), std::move(errors), std::nullopt}));
  } catch (...) {
    process::kill_and_reap(child.pid);
    throw;
  }
  ++running_;
  const auto i = static_cast<size_t>(local_rank);
  const Worker& worker = *workers_.back();
  add(epoll_.get(), worker.process.pidfd.get(), EPOLLIN, Source::kExit, i);
  add(streams_.get(), worker.output.pipe(), EPOLLIN, Source::kStream, 2 * i);
  add(streams_.get(), worker.error.pipe(), EPOLLIN, Source::kStream, 2 * i + 1);
}

void Agent::watch() {
  std::array<epoll_event, 64> events;
  while (running_ > 0 && phase_ != Phase::kGivenUp) {
    flush_console();
    const int64_t wait_ns =
        deadline_ns_ == kNever ? kNever : std::max<int64_t>(0, deadline_ns_ - monotonic_ns());
    const int wait_ms = wait_ns == kNever ? -1 : static_cast<int>(wait_ns / 1'000'000 + 1);
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
    // Events come in the order in which they happened, so of two deaths the earlier is seen first.
    for (int i = 0; i < n; ++i) {
      const uint64_t data = events[static_cast<size_t>(i)].data.u64;
      switch (static_cast<Source>(data >> 32)) {
        case Source::kSignal:
          on_signal();
          break;
        case Source::kExit:
          on_exit(*workers_[data & 0xffffffff]);
          break;
        case Source::kStreams:
          on_streams();
          break;
        case Source::kStream:
        case Source::kConsole:
          break;  // the loop's head flushes
      }
    }
    if (monotonic_ns() >= deadline_ns_) on_deadline();
  }
}

// While the reader of the console is behind, nothing more is read from the workers, who wait in their turn;
// deaths and signals are still seen.
void Agent::flush_console() {
  const int blocked = console_.flush() ? -1 : console_.blocked_fd();
  if (blocked == blocked_fd_) return;
  if (blocked_fd_ >= 0) remove(epoll_.get(), blocked_fd_);
  if (blocked >= 0) add(epoll_.get(), blocked, EPOLLOUT, Source::kConsole);
  if (blocked >= 0 && blocked_fd_ < 0) remove(epoll_.get(), streams_.get());
  if (blocked < 0) add(epoll_.get(), streams_.get(), EPOLLIN, Source::kStreams);
  blocked_fd_ = blocked;
}

void Agent::on_streams() {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(streams_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t index = events[static_cast<size_t>(i)].data.u64 & 0xffffffff;
    Worker& worker = *workers_[index / 2];
    WorkerOutput& output = index % 2 == 0 ? worker.output : worker.error;
    if (output.pump(console_, kPumpBytes) != WorkerOutput::Pumped::kEnd) continue;
    remove(streams_.get(), output.pipe());
    output.close();
  }
}

void Agent::on_exit(Worker& worker) {
  siginfo_t info{};
  // The zombie stays until the end: it keeps its process group's number from being given to others.
  if (::waitid(P_PID, static_cast<id_t>(worker.process.pid), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
      info.si_pid == 0)
    return;
  const bool by_signal = info.si_code != CLD_EXITED;
  worker.exit = Exit{monotonic_ns(), by_signal ? 0 : info.si_status, by_signal ? info.si_status : 0,
                     phase_ >= Phase::kStopping};
  remove(epoll_.get(), worker.process.pidfd.get());
  worker.process.pidfd.reset();
  --running_;
  if (worker.exit->ok() || phase_ >= Phase::kStopping) return;
  if (worker.exit->code == static_cast<int>(ExitCode::kDistributed)) {
    if (phase_ == Phase::kRunning) deadline_ns_ = monotonic_ns() + kSettleNs;
    phase_ = Phase::kSettling;
  } else {
    stop_workers();
  }
}

void Agent::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (phase_ >= Phase::kStopping) {
      if (signal == SIGINT || signal == SIGQUIT) kill_workers();
      continue;
    }
    if (phase_ == Phase::kRunning) interrupted_by_ = signal;
    print(fmt::format("SIG{}: stopping {} worker{}{}", ::sigabbrev_np(signal), running_,
                      running_ == 1 ? "" : "s", signal == SIGINT ? " (again to kill)" : ""));
    stop_workers();
  }
}

void Agent::on_deadline() {
  deadline_ns_ = kNever;
  switch (phase_) {
    case Phase::kRunning:
      break;
    case Phase::kSettling:
      stop_workers();
      break;
    case Phase::kStopping:
      for (const auto& worker : workers_) {
        if (worker->exit) continue;
        print(fmt::format("rank {} (pid {}) did not stop within {} s: killed", rank_of(*worker),
                          worker->process.pid, plan_.grace_s));
      }
      kill_workers();
      break;
    case Phase::kKilling:
      for (const auto& worker : workers_) {
        if (worker->exit) continue;
        print(fmt::format("rank {} (pid {}) survives SIGKILL, stuck in the kernel: left behind",
                          rank_of(*worker), worker->process.pid));
      }
      phase_ = Phase::kGivenUp;
      break;
    case Phase::kGivenUp:
      break;
  }
}

void Agent::stop_workers() {
  phase_ = Phase::kStopping;
  deadline_ns_ = monotonic_ns() + static_cast<int64_t>(plan_.grace_s * static_cast<double>(kSecondNs));
  signal_workers(SIGTERM);
}

void Agent::kill_workers() {
  phase_ = Phase::kKilling;
  deadline_ns_ = monotonic_ns() + kUnkillableNs;
  signal_workers(SIGKILL);
}

void Agent::signal_workers(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->exit) ::kill(-worker->process.pid, signal);
  }
}

void Agent::end_processes() {
  if (std::exchange(ended_, true)) return;
  std::vector<pid_t> leaders;
  for (const auto& worker : workers_) leaders.push_back(worker->process.pid);
  reaper_.end(leaders);
}

// What the pipe holds. Bounded: a process out of reach may still write to it.
void Agent::drain(WorkerOutput& output) {
  output.pump(console_, static_cast<size_t>(std::max(::fcntl(output.pipe(), F_GETPIPE_SZ), 0)));
  output.flush_partial(console_);
}

int Agent::finish() {
  end_processes();  // first: who still writes would keep the pipes full
  std::vector<Failure> failures;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    drain(worker.output);
    drain(worker.error);
    if (worker.exit && worker.exit->ok()) continue;
    const fs::path log_dir = worker_log_dir(plan_, assignment_, static_cast<int64_t>(i));
    const Exit exit = worker.exit.value_or(Exit{monotonic_ns(), 0, SIGKILL, true});
    failures.push_back({plan_.node_rank, rank_of(worker), worker.process.pid, exit,
                        report::read_error_file(log_dir / "error.json"), log_dir / "stderr.log"});
  }
  const Failure* root = interrupted_by_ != 0 ? nullptr : root_cause(failures);
  if (root != nullptr) {
    int64_t next_ns = kNever;
    for (const auto& worker : workers_) {
      if (worker->exit && worker->exit->time_ns > root->exit.time_ns)
        next_ns = std::min(next_ns, worker->exit->time_ns);
    }
    print(describe(*root, next_ns == kNever ? 0 : next_ns,
                   hardware::read_cgroup_limits().oom_kills - oom_kills_before_));
  }
  console_.flush();
  const auto preempted = [](const Failure& f) {
    return f.exit.code == static_cast<int>(ExitCode::kPreempted);
  };
  if (root != nullptr) return root->exit.program_code();
  if (interrupted_by_ == 0) return 0;
  const bool all = failures.size() > 0 && std::all_of(failures.begin(), failures.end(), preempted);
  return all ? static_cast<int>(ExitCode::kPreempted) : 128 + interrupted_by_;
}

}  // namespace

int run_agent(const WorkerPlan& plan) {
  for (int fd = 0; fd <= 2; ++fd) {  // a pipe must not take the number of a closed standard stream
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
  const process::SignalMask signals;
  Agent agent(plan);
  agent.start(signals);
  agent.watch();
  const int code = agent.finish();
  signals.unblock();  // while somebody's pager is slow to read the rest, Ctrl-C works as anywhere
  agent.write_output();
  return code;
}

}  // namespace trainer::launch
