#include "launch/preempt_trigger.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace trainer::launch {

namespace fs = std::filesystem;

PreemptTrigger::PreemptTrigger(EventLoop& loop, const WorkerPlan& plan,
                               std::function<void(const std::string&)> on_preempt)
    : loop_(loop), file_(plan.preempt_file), on_preempt_(std::move(on_preempt)) {
  if (!file_.empty()) watch_directory();
  const char* end = std::getenv("SLURM_JOB_END_TIME");
  int64_t end_s = 0;
  if (plan.stop_before_end_s > 0 && end != nullptr &&
      std::from_chars(end, end + std::strlen(end), end_s).ec == std::errc()) {
    timer_ = loop_.after(static_cast<double>(end_s) - unix_time_s() - plan.stop_before_end_s,
                         [this] { on_preempt_("the Slurm job's end is near (launch.stop_before_end_s)"); });
  }
}

PreemptTrigger::~PreemptTrigger() {
  loop_.cancel(timer_);
  if (inotify_.is_open()) loop_.remove(inotify_.get());
}

void PreemptTrigger::watch_directory() {
  const fs::path directory = fs::absolute(file_).parent_path();
  inotify_ = Descriptor(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_.is_open() ||
      ::inotify_add_watch(inotify_.get(), directory.c_str(), IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
    fail<SpecError>("launch.preempt_file: cannot watch {}: {}; the directory must exist", directory.string(),
                    std::strerror(errno));
  }
  loop_.add(inotify_.get(), EPOLLIN, [this](uint32_t) {
    std::array<char, 4096> events;
    while (::read(inotify_.get(), events.data(), events.size()) > 0) {
    }
    check_file("");
  });
  loop_.defer([this] { check_file(", there before the job was: remove it to run"); });
}

void PreemptTrigger::check_file(const char* when) {
  std::error_code error;
  if (!inotify_.is_open() || !fs::exists(file_, error) || fs::is_directory(file_, error)) return;
  loop_.remove(inotify_.get());
  inotify_.reset();
  on_preempt_("launch.preempt_file " + file_ + when);
}

}  // namespace trainer::launch
