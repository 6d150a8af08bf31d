#include "launch/hang_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/worker_group.h"
#include "process/stacks.h"

namespace trainer::launch {
namespace {

constexpr double kLeastLearnedS = 60, kTimesSlowest = 5;
// Before the first step and while a checkpoint is written much takes long that is no hang.
constexpr double kTimesUnstepped = 10;
constexpr double kStacksTimeoutS = 10;

}  // namespace

// One thread at a time; ptrace is the thread's, so it does all for one process.
class HangWatch::StackReader {
 public:
  StackReader(EventLoop& loop, Stacks stacks, pid_t pid, const std::function<void(const Message&)>& send)
      : loop_(loop), done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), stacks_(std::move(stacks)) {
    loop_.add(done_.get(), EPOLLIN, [this, send](uint32_t) {
      loop_.remove(done_.get());
      send(stacks_);
    });
    thread_ = std::thread([this, pid] {
      stacks_.text = pid > 0 ? process::stacks_of(pid, kStacksTimeoutS) : "the process is gone";
      ::eventfd_write(done_.get(), 1);
    });
  }
  ~StackReader() {
    thread_.join();
    loop_.remove(done_.get());
  }

 private:
  EventLoop& loop_;
  Descriptor done_;
  Stacks stacks_;
  std::thread thread_;
};

HangWatch::HangWatch(EventLoop& loop, const WorkerPlan& plan, std::function<void(const Message&)> send)
    : loop_(loop), plan_(plan), send_(std::move(send)) {}

HangWatch::~HangWatch() {
  stop();
}

void HangWatch::start(const WorkerGroup& group) {
  group_ = &group;
  told_ = false;
  interval_ = 0;
  if (plan_.hang_timeout_s >= 0) {
    const double period_s = plan_.hang_timeout_s > 0 ? std::clamp(plan_.hang_timeout_s / 8, 0.05, 5.0) : 5.0;
    check_timer_ = loop_.after(period_s, [this] { check(); });
  }
  if (plan_.straggler_factor > 0 && group.assignment().world_size > 1)
    status_timer_ = loop_.after(plan_.straggler_interval_s, [this] { tell_status(); });
}

void HangWatch::stop() {
  group_ = nullptr;
  loop_.cancel(check_timer_);
  loop_.cancel(status_timer_);
  reader_.reset();
}

double HangWatch::timeout_s(double slowest_s) const {
  return plan_.hang_timeout_s > 0 ? plan_.hang_timeout_s
                                  : std::max(kLeastLearnedS, kTimesSlowest * slowest_s);
}

void HangWatch::check() {
  const double timeout = timeout_s(group_->slowest_beat_s());
  bool any_attached = false;
  for (const RankStatus& rank : group_->status()) {
    any_attached |= rank.attached;
    const auto phase = static_cast<report::Phase>(rank.phase);
    const bool unstepped =
        rank.step == 0 || phase == report::Phase::kCheckpoint || phase == report::Phase::kFinishing;
    const double allowed = unstepped ? kTimesUnstepped * timeout : timeout;
    if (!rank.attached || rank.since_beat_s < allowed || told_) continue;
    told_ = true;  // the coordinator ends the attempt
    send_(Stalled{group_->assignment().attempt, rank.rank, allowed});
  }
  // A program that never attached in all that time is none that tells its progress.
  const double period_s = std::clamp(timeout / 8, 0.05, any_attached ? 5.0 : 60.0);
  check_timer_ = loop_.after(period_s, [this] { check(); });
}

void HangWatch::tell_status() {
  Status status{group_->assignment().attempt, interval_++, group_->status()};
  std::erase_if(status.ranks, [](const RankStatus& rank) { return !rank.attached; });
  if (!status.ranks.empty()) send_(status);
  status_timer_ = loop_.after(plan_.straggler_interval_s, [this] { tell_status(); });
}

void HangWatch::send_stacks(const AskStacks& ask) {
  reader_.reset();
  reader_ = std::make_unique<StackReader>(loop_, Stacks{ask.attempt, ask.rank, "", group_->log_of(ask.rank)},
                                          group_->pid_of(ask.rank), send_);
}

}  // namespace trainer::launch
