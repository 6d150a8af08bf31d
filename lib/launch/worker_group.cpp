#include "launch/worker_group.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "hardware/cgroup.h"
#include "hardware/machine.h"
#include "process/stacks.h"
#include "report/error_file.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

constexpr double kUnkillableS = 10;  // a process stuck in the kernel survives SIGKILL

void raise_file_limit(int64_t nproc) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(256 + 12 * nproc);
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);  // too low still: spawn says so
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

WorkerGroup::WorkerGroup(const GroupContext& context, const Assignment& assignment, Hooks hooks)
    : context_(context),
      assignment_(assignment),
      hooks_(std::move(hooks)),
      oom_kills_before_(hardware::read_cgroup_limits().oom_kills) {
  raise_file_limit(context_.plan.nproc);
  try {
    for (int64_t i = 0; i < context_.plan.nproc; ++i) start_worker(i);
  } catch (...) {
    finish_processes();
    throw;
  }
}

WorkerGroup::~WorkerGroup() {
  context_.loop.cancel(timer_);
  if (phase_ != Phase::kEnded) finish_processes();
}

void WorkerGroup::start_worker(int64_t local_rank) {
  const WorkerPlan& plan = context_.plan;
  const fs::path log_dir = worker_log_dir(plan, assignment_, local_rank);
  std::error_code error;
  fs::create_directories(log_dir, error);
  if (error) {
    fail<SpecError>("launch: cannot make the log directory {}: {}\n  hint: job.output_dir must be writable",
                    log_dir.string(), error.message());
  }
  fs::remove(log_dir / "error.json", error);  // an earlier run's
  report::Progress progress = report::Progress::create();
  Console& console = context_.outputs.console();
  std::map<std::string, std::string> env = worker_environment(plan, assignment_, local_rank);
  if (plan.threads_per_worker == 0 && std::getenv("OMP_NUM_THREADS") == nullptr &&
      !plan.env.contains("OMP_NUM_THREADS")) {
    env["OMP_NUM_THREADS"] =
        std::to_string(worker_threads(context_.setup.placement, local_rank, plan.nproc, plan.cores));
  }
  env.insert(context_.setup.network.begin(), context_.setup.network.end());
  env["TRAINER_CONSOLE"] = console.is_terminal() ? "terminal" : "plain";
  if (console.is_terminal()) env["COLUMNS"] = std::to_string(console.columns());
  env[context_.guard.variable()] = context_.guard.value();
  env["TRAINER_PROGRESS_FD"] = std::to_string(progress.fd());

  process::SpawnOptions options;
  options.signal_mask = context_.worker_mask;
  // A terminal would stop who reads it from another session.
  if (::isatty(0) != 1) options.input = 0;
  options.inherited_fds = {progress.fd()};
  const Placement& placement = context_.setup.placement;
  if (!placement.workers.empty()) {
    const Binding& binding = placement.workers[static_cast<size_t>(local_rank)];
    options.cpus = binding.cpus;
    options.memory_nodes = binding.memory_nodes;
  }
  process::Process child = process::spawn(worker_command(plan, local_rank), env, options);
  context_.guard.watch(child.pid);
  try {
    WorkerOutput output(std::move(child.output), output_options(plan, assignment_, local_rank, 1));
    WorkerOutput errors(std::move(child.error), output_options(plan, assignment_, local_rank, 2));
    workers_.push_back(std::make_unique<Worker>(
        Worker{std::move(child), std::move(progress), std::move(output), std::move(errors)}));
  } catch (...) {
    process::kill_and_reap(child.pid);
    context_.guard.forget(child.pid);
    throw;
  }
  ++running_;
  Worker& worker = *workers_.back();
  if (worker.process.binding_error != 0 && local_rank == 0)
    print(fmt::format("warning: the workers are not bound to their CPUs: {}",
                      std::strerror(worker.process.binding_error)));
  const size_t index = workers_.size() - 1;
  context_.loop.add(worker.process.pidfd.get(), EPOLLIN, [this, index](uint32_t) { on_exit(index); });
  context_.outputs.watch(worker.output);
  context_.outputs.watch(worker.error);
}

void WorkerGroup::on_exit(size_t index) {
  Worker& worker = *workers_[index];
  siginfo_t info{};
  // The zombie stays until the end: it keeps its process group's number from being given to others.
  if (::waitid(P_PID, static_cast<id_t>(worker.process.pid), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
      info.si_pid == 0)
    return;
  const int64_t now_ns = monotonic_ns();
  context_.loop.remove(worker.process.pidfd.get());
  worker.process.pidfd.reset();
  worker.running = false;
  --running_;

  Failure failure;
  failure.time_ns = now_ns;
  (info.si_code == CLD_EXITED ? failure.code : failure.signal) = info.si_status;
  const bool preempted = failure.code == static_cast<int>(ExitCode::kPreempted) && phase_ >= Phase::kAsked;
  num_preempted_ += preempted ? 1 : 0;
  if (failure.program_code() != 0 && !preempted) {
    const fs::path log_dir = worker_log_dir(context_.plan, assignment_, static_cast<int64_t>(index));
    failure.node_rank = assignment_.node_rank;
    failure.rank = rank_of(index);
    failure.host = context_.host;
    failure.pid = worker.process.pid;
    failure.core_dumped = info.si_code == CLD_DUMPED;
    failure.is_trainer = context_.plan.is_trainer;
    failure.after_stop = phase_ >= Phase::kStopping;
    const report::ProgressPage& page = worker.progress.page();
    if (page.attached != 0 && page.step > 0) failure.step = page.step;
    if (const auto report = report::read_error_file(log_dir / "error.json")) {
      failure.message = report->message;
      if (report->step) failure.step = *report->step;
    }
    failure.log = log_of(failure.rank);
    if (!failure.after_stop ||
        !failure.message.empty()) {  // for thousands that were told to stop it is no use
      context_.outputs.drain(worker.error);
      failure.tail = worker.error.last_lines();
      failure.hint = hint_for(failure, hardware::read_cgroup_limits().oom_kills - oom_kills_before_,
                              hardware::memory_limit_bytes());
    }
    hooks_.on_failed(failure);
  }
  if (running_ == 0) end();
}

void WorkerGroup::enter(Phase phase, double seconds, void (WorkerGroup::*then)()) {
  phase_ = phase;
  context_.loop.cancel(timer_);
  timer_ = context_.loop.after(seconds, [this, then] { (this->*then)(); });
}

void WorkerGroup::stop(int signal, const std::vector<int64_t>& kill) {
  if (phase_ >= Phase::kStopping) return;
  enter(Phase::kStopping, context_.plan.grace_s, &WorkerGroup::on_grace_over);
  signal_running(signal);
  for (const int64_t rank : kill) {
    if (const pid_t pid = pid_of(rank); pid > 0) ::kill(-pid, SIGKILL);
  }
}

void WorkerGroup::on_grace_over() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->running) continue;
    print(fmt::format("rank {} (pid {}) did not stop within {} s: killed", rank_of(i),
                      workers_[i]->process.pid, context_.plan.grace_s));
  }
  kill();
}

void WorkerGroup::kill() {
  if (phase_ >= Phase::kKilling) return;
  enter(Phase::kKilling, kUnkillableS, &WorkerGroup::on_unkillable);
  signal_running(SIGKILL);
}

void WorkerGroup::on_unkillable() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->running) continue;
    print(fmt::format("rank {} (pid {}) survives SIGKILL, stuck in the kernel: left behind", rank_of(i),
                      workers_[i]->process.pid));
  }
  end();
}

void WorkerGroup::raise(int64_t id, bool stop, int signal) {
  if (phase_ != Phase::kRunning) return;
  int64_t num_asked = 0;
  for (const auto& worker : workers_) {
    if (!worker->running) continue;
    report::ProgressPage& page = worker->progress.page();
    if (page.attached != 0) {
      page.request = stop ? report::Request::kStop : report::Request::kSave;
      page.request_id = static_cast<uint32_t>(id);
      ++num_asked;
    } else if (signal != 0 && !stop) {
      ::kill(-worker->process.pid, signal);
    }
  }
  if (!stop) return;
  if (num_asked == running_ && !is_preparing()) {
    enter(Phase::kAsked, context_.plan.preempt_grace_s, &WorkerGroup::on_preempt_grace_over);
  } else {
    this->stop(signal != 0 ? signal : SIGTERM);
  }
}

// No rank has begun a step: there is nothing to save.
bool WorkerGroup::is_preparing() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
    const report::ProgressPage& page = worker->progress.page();
    return page.step == 0 && page.phase <= report::Phase::kLoading;
  });
}

void WorkerGroup::on_preempt_grace_over() {
  print(fmt::format("the workers have not saved and stopped within {} s (launch.preempt_grace_s): SIGTERM",
                    context_.plan.preempt_grace_s));
  stop(SIGTERM);
}

void WorkerGroup::go(int64_t id) {
  for (const auto& worker : workers_) worker->progress.page().go_id = static_cast<uint32_t>(id);
}

std::vector<RankStatus> WorkerGroup::status() const {
  std::vector<RankStatus> ranks;
  const int64_t now_ns = monotonic_ns();
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->running) continue;
    const report::ProgressPage& page = workers_[i]->progress.page();
    ranks.push_back({rank_of(i), workers_[i]->process.pid, page.attached != 0, page.step,
                     static_cast<uint32_t>(page.phase.load()),
                     1e-9 * static_cast<double>(now_ns - page.beat_ns), page.busy_ns,
                     process::state_of(workers_[i]->process.pid)});
  }
  return ranks;
}

std::string WorkerGroup::log_of(int64_t rank) const {
  return worker_log_dir(context_.plan, assignment_, rank - assignment_.first_rank) / "stderr.log";
}

pid_t WorkerGroup::pid_of(int64_t rank) const {
  const int64_t index = rank - assignment_.first_rank;
  if (index < 0 || index >= static_cast<int64_t>(workers_.size())) return 0;
  const Worker& worker = *workers_[static_cast<size_t>(index)];
  return worker.running ? worker.process.pid : 0;
}

int64_t WorkerGroup::last_step() const {
  int64_t last = -1;
  for (const auto& worker : workers_) {
    const report::ProgressPage& page = worker->progress.page();
    if (page.attached != 0) last = std::max(last, page.step.load());
  }
  return last;
}

double WorkerGroup::slowest_beat_s() const {
  int64_t slowest_ns = 0;
  for (const auto& worker : workers_)
    slowest_ns = std::max(slowest_ns, worker->progress.page().slowest_ns.load());
  return 1e-9 * static_cast<double>(slowest_ns);
}

void WorkerGroup::print(const std::string& text) {
  context_.outputs.console().line(2, "", text);
}

void WorkerGroup::signal_running(int signal) {
  for (const auto& worker : workers_) {
    if (worker->running) ::kill(-worker->process.pid, signal);
  }
}

void WorkerGroup::end() {
  if (phase_ == Phase::kEnded) return;
  context_.loop.cancel(timer_);
  finish_processes();
  hooks_.on_ended();
}

void WorkerGroup::finish_processes() {
  phase_ = Phase::kEnded;
  std::vector<pid_t> leaders;
  for (const auto& worker : workers_) {
    leaders.push_back(worker->process.pid);
    if (worker->process.pidfd.is_open()) context_.loop.remove(worker->process.pidfd.get());
  }
  context_.reaper.end(leaders);  // before draining: who still writes would keep the pipes full
  for (const pid_t leader : leaders) context_.guard.forget(leader);
  for (const auto& worker : workers_) {
    for (WorkerOutput* output : {&worker->output, &worker->error}) {
      context_.outputs.drain(*output);
      context_.outputs.forget(*output);
      output->close();
    }
  }
}

}  // namespace trainer::launch
