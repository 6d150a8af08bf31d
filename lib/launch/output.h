#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/descriptor.h"
#include "launch/console.h"

namespace trainer::launch {

// One output stream of one worker: its bytes go to a log file at once, its complete lines to the console.
class WorkerOutput {
 public:
  // `fd`: 1 or 2. `shows_status`: its status lines (core/log.h) are the console's; others' are dropped. They
  // are never logged. Throws SpecError when the log can't be created.
  WorkerOutput(Descriptor pipe, int fd, const std::filesystem::path& log, std::string prefix,
               bool shows_status);

  enum class Pumped { kMore, kNothingNow, kEnd };

  int pipe() const { return pipe_.get(); }
  void close() { pipe_.reset(); }
  // Takes what the pipe holds, at most about `max_bytes` (then kMore).
  Pumped pump(Console& console, size_t max_bytes);
  // Shows a last line that has no newline.
  void flush_partial(Console& console);

 private:
  void take(std::string_view bytes, Console& console);
  void show(std::string_view line, Console& console);
  void write_log(std::string_view bytes, Console& console);

  Descriptor pipe_;
  Descriptor log_;
  int fd_;
  std::string prefix_;
  bool shows_status_;
  bool in_status_ = false;
  std::string partial_;  // the line so far
};

}  // namespace trainer::launch
