#pragma once

#include <array>

#include "core/descriptor.h"
#include "core/event_loop.h"
#include "launch/output/console.h"
#include "launch/output/output.h"

namespace trainer::launch {

// Moves the workers' output to the console and their logs. While the console is full nothing more is read from the
// workers, who wait in their turn; deaths and signals are still seen. A reader that has stalled holds up for seconds at
// most those whose output is logged.
class OutputPump {
 public:
  OutputPump(EventLoop& loop, Console& console);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  // Until forget(), or its end.
  void watch(WorkerOutput& output);
  void forget(WorkerOutput& output);
  // Takes what the pipe holds now, and a last line without a newline. Bounded: a process out of reach may still
  // write to it.
  void drain(WorkerOutput& output);
  // Before each wait of the loop.
  void flush();
  Console& console() { return console_; }

 private:
  // An epoll set of its own, so that all of it can be left aside.
  struct Streams {
    Descriptor set;
    bool is_read = false;
  };
  Streams& streams_of(const WorkerOutput& output) { return output.is_logged() ? logged_ : unlogged_; }
  void read(Streams& streams, bool reads);
  void on_streams(const Streams& streams);

  EventLoop& loop_;
  Console& console_;
  Streams logged_, unlogged_;
  std::array<int, 2> blocked_fds_{-1, -1};  // the console's, when their reader is behind
  EventLoop::TimerId patience_ = 0;
};

}  // namespace trainer::launch
