#include "launch/output/output_pump.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer::launch {
namespace {

constexpr size_t kPumpBytes = 256 << 10;  // of one stream before the others have their turn

}  // namespace

OutputPump::OutputPump(EventLoop& loop, Console& console)
    : loop_(loop), console_(console), streams_(::epoll_create1(EPOLL_CLOEXEC)) {
  loop_.add(streams_.get(), EPOLLIN, [this](uint32_t) { on_streams(); });
}

OutputPump::~OutputPump() {
  loop_.remove(streams_.get());
  if (blocked_fd_ >= 0) loop_.remove(blocked_fd_);
}

void OutputPump::watch(WorkerOutput& output) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &output;
  if (::epoll_ctl(streams_.get(), EPOLL_CTL_ADD, output.pipe(), &event) != 0)
    fail<SpecError>("launch: cannot watch a worker's output: {}", std::strerror(errno));
}

// Before closing: closing alone leaves a descriptor in the epoll set while a child between vfork and exec has
// a copy.
void OutputPump::forget(WorkerOutput& output) {
  if (output.pipe() >= 0) ::epoll_ctl(streams_.get(), EPOLL_CTL_DEL, output.pipe(), nullptr);
}

void OutputPump::drain(WorkerOutput& output) {
  output.pump(console_, static_cast<size_t>(std::max(::fcntl(output.pipe(), F_GETPIPE_SZ), 0)));
  output.flush_partial(console_);
}

void OutputPump::flush() {
  const int blocked = console_.flush() ? -1 : console_.blocked_fd();
  if (blocked == blocked_fd_) return;
  if (blocked_fd_ >= 0) loop_.remove(blocked_fd_);
  if (blocked >= 0) loop_.add(blocked, EPOLLOUT, [](uint32_t) {});  // the next flush writes
  if (blocked >= 0 && blocked_fd_ < 0) loop_.remove(streams_.get());
  if (blocked < 0) loop_.add(streams_.get(), EPOLLIN, [this](uint32_t) { on_streams(); });
  blocked_fd_ = blocked;
}

void OutputPump::on_streams() {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(streams_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i) {
    WorkerOutput& output = *static_cast<WorkerOutput*>(events[static_cast<size_t>(i)].data.ptr);
    if (output.pump(console_, kPumpBytes) != WorkerOutput::Pumped::kEnd) continue;
    forget(output);
    output.close();
  }
}

}  // namespace trainer::launch
