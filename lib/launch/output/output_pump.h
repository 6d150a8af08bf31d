#pragma once

#include "core/descriptor.h"
#include "core/event_loop.h"
#include "launch/output/console.h"
#include "launch/output/output.h"

namespace trainer::launch {

// Moves the workers' output to the console and their logs. While the reader of the console is behind, nothing
// more is read from the workers, who wait in their turn; deaths and signals are still seen.
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
  void on_streams();

  EventLoop& loop_;
  Console& console_;
  Descriptor streams_;   // an epoll set of its own, so that all of it can be left aside
  int blocked_fd_ = -1;  // the console's, when its reader is behind
};

}  // namespace trainer::launch
