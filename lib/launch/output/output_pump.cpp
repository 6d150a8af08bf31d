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

constexpr double kPatienceS = 2;

}  // namespace

OutputPump::OutputPump(EventLoop& loop, Console& console) : loop_(loop), console_(console) {
  for (Streams* streams : {&logged_, &unlogged_}) {
    streams->set = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    read(*streams, true);
  }
}

OutputPump::~OutputPump() {
  loop_.cancel(patience_);
  for (Streams* streams : {&logged_, &unlogged_}) read(*streams, false);
  for (const int fd : blocked_fds_) {
    if (fd >= 0) loop_.remove(fd);
  }
}

void OutputPump::read(Streams& streams, bool reads) {
  if (reads == streams.is_read) return;
  streams.is_read = reads;
  if (reads) {
    loop_.add(streams.set.get(), EPOLLIN, [this, &streams](uint32_t) { on_streams(streams); });
  } else {
    loop_.remove(streams.set.get());
  }
}

void OutputPump::watch(WorkerOutput& output) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &output;
  if (::epoll_ctl(streams_of(output).set.get(), EPOLL_CTL_ADD, output.pipe(), &event) != 0)
    fail<SpecError>("launch: cannot watch a worker's output: {}", std::strerror(errno));
}

// Before closing: closing alone leaves a descriptor in the epoll set while a child between vfork and exec has
// a copy.
void OutputPump::forget(WorkerOutput& output) {
  if (output.pipe() >= 0) ::epoll_ctl(streams_of(output).set.get(), EPOLL_CTL_DEL, output.pipe(), nullptr);
}

void OutputPump::drain(WorkerOutput& output) {
  output.pump(console_, static_cast<size_t>(std::max(::fcntl(output.pipe(), F_GETPIPE_SZ), 0)));
  output.flush_partial(console_);
}

void OutputPump::flush() {
  console_.flush();
  const std::array<int, 2> blocked = console_.blocked_fds();
  for (size_t i = 0; i < blocked.size(); ++i) {
    if (blocked[i] == blocked_fds_[i]) continue;
    if (blocked_fds_[i] >= 0) loop_.remove(blocked_fds_[i]);
    if (blocked[i] >= 0) loop_.add(blocked[i], EPOLLOUT, [](uint32_t) {});  // the next flush writes
    blocked_fds_[i] = blocked[i];
  }
  const bool is_full = console_.is_full(true);
  read(logged_, !is_full);
  read(unlogged_, !console_.is_full(false));
  if (!is_full || patience_ != 0) return;
  console_.begin_patience();
  patience_ = loop_.after(kPatienceS, [this] {
    patience_ = 0;
    console_.end_patience();
  });
}

void OutputPump::on_streams(const Streams& streams) {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(streams.set.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i) {
    WorkerOutput& output = *static_cast<WorkerOutput*>(events[static_cast<size_t>(i)].data.ptr);
    if (output.pump(console_, kPumpBytes) != WorkerOutput::Pumped::kEnd) continue;
    forget(output);
    output.close();
  }
}

}  // namespace trainer::launch
