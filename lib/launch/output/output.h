#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "launch/output/console.h"
#include "launch/output/log_file.h"
#include "launch/plan/plan.h"

namespace trainer::launch {

struct OutputOptions {
  int fd = 1;                      // or 2
  std::filesystem::path log = {};  // empty: none
  int64_t log_max_bytes = 0;       // LogFile's
  std::string prefix = {};         // of lines on the console
  bool shows_lines = true;         // on the console
  bool has_status = false;         // the stream may have status lines (core/log.h), which are never logged
  bool shows_status = false;       // they, or the lines that a program draws over with \r, are the console's
  std::vector<std::string> filters = {};    // lines with one of them go to filtered_log too
  std::filesystem::path filtered_log = {};  // of all workers of the node
};

// What the plan has for one stream of a worker.
OutputOptions output_options(const WorkerPlan& plan, const Assignment& assignment, int64_t local_rank,
                             int fd);

// One output stream of one worker: its bytes go to a log file at once, its complete lines to the console.
class WorkerOutput {
 public:
  // Throws SpecError when a log can't be created.
  WorkerOutput(Descriptor pipe, OutputOptions options);

  enum class Pumped { kMore, kNothingNow, kEnd };

  bool is_logged() const { return !options_.log.empty(); }
  int pipe() const { return pipe_.get(); }
  void close() { pipe_.reset(); }
  // Takes what the pipe holds, at most about `max_bytes` (then kMore).
  Pumped pump(Console& console, size_t max_bytes);
  // The newest lines, for the report of a failure: also of a stream that no file could take.
  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }
  // Shows a last line that has no newline.
  void flush_partial(Console& console);

 private:
  void take(std::string_view bytes, Console& console);
  void show(std::string_view line, Console& console);
  void show_redrawn(Console& console);
  void write_log(std::string_view bytes, Console& console);

  OutputOptions options_;
  Descriptor pipe_;
  LogFile log_;
  Descriptor filtered_;
  bool in_status_ = false;
  bool redraws_ = false;  // the partial line is drawn as the status
  std::string partial_;   // the line so far
  std::deque<std::string> last_lines_;
};

}  // namespace trainer::launch
