#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/error_file.h"

namespace trainer::launch {

// How a worker ended.
struct Exit {
  int64_t time_ns = 0;      // monotonic, when the agent learned of it
  int code = 0;             // exit status; 0 with a signal
  int signal = 0;           // that killed it; 0: none
  bool after_stop = false;  // the agent had told it to stop by then

  bool ok() const { return code == 0 && signal == 0; }
  int program_code() const { return signal != 0 ? 128 + signal : code; }
};

// A worker that did not end well.
struct Failure {
  int64_t node_rank = 0;
  int64_t rank = 0;
  int64_t pid = 0;
  Exit exit;
  std::optional<report::ErrorReport> report;
  std::filesystem::path log;  // of its standard error
};

// The one that failed by itself first. A rank that only lost its peers (exit code 4) yields to one that
// failed for another reason within two seconds: a process closes its connections before it is dead, so its
// peers may be seen to die first. Null when none failed by itself.
const Failure* root_cause(const std::vector<Failure>& failures);

// The report that a job's output ends with: who, when, why, where to read on. `next_ns`: when the next worker
// ended, 0 when none did later. `oom_kills`: processes that the kernel killed for memory during the job.
std::string describe(const Failure& failure, int64_t next_ns, int64_t oom_kills);

// Last lines of a file, at most `max_lines` and 8 KiB.
std::vector<std::string> last_lines(const std::filesystem::path& path, size_t max_lines);

}  // namespace trainer::launch
