#include "launch/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/format.h"
#include "hardware/cgroup.h"
#include "hardware/machine.h"

namespace trainer::launch {
namespace {

constexpr int64_t kPeerLostWindowNs = 2'000'000'000;

bool lost_peers(const Failure& failure) {
  return failure.exit.code == static_cast<int>(ExitCode::kDistributed);
}

// By the words of dist/failure.cpp.
bool only_lost_peers(const Failure& failure) {
  return lost_peers(failure) && failure.report &&
         failure.report->message.find("a peer has probably died") != std::string::npos;
}

// Told to stop, and nothing says that it failed before.
bool was_stopped(const Failure& failure) {
  return failure.exit.after_stop && !failure.report;
}

bool earlier(const Failure* a, const Failure* b) {
  return a->exit.after_stop != b->exit.after_stop ? b->exit.after_stop : a->exit.time_ns < b->exit.time_ns;
}

std::string how(const Exit& exit) {
  if (exit.signal == 0) return fmt::format("exit code {}", exit.code);
  const char* name = ::sigabbrev_np(exit.signal);
  return fmt::format("killed by signal {} (SIG{})", exit.signal, name != nullptr ? name : "?");
}

// Empty: a signal that says what there is to say by its name.
std::string hint(int signal, int64_t oom_kills) {
  switch (signal) {
    case SIGKILL: {
      const std::string limit = "the limit here is " + binary_bytes(hardware::memory_limit_bytes());
      return oom_kills > 0 ? "the kernel killed it for memory; " + limit
                           : "perhaps the kernel's out-of-memory killer (see dmesg; " + limit +
                                 "), or somebody's kill -9";
    }
    case SIGABRT:
      return "a library found a fault and aborted; NCCL's watchdog does so when a collective times out: then "
             "the cause is in the log of a rank that did not take part in it";
    case SIGBUS:
      return "perhaps /dev/shm is full (see df /dev/shm), or a mapped file was cut short";
    default:
      return {};
  }
}

void append_indented(std::string& text, const std::string& lines) {
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(" \t");
    // A message's own hint lines are indented already.
    text += "\n  " +
            (first != std::string::npos && line.compare(first, 5, "hint:") == 0 ? line.substr(first) : line);
  }
}

}  // namespace

const Failure* root_cause(const std::vector<Failure>& failures) {
  std::vector<const Failure*> candidates;
  for (const Failure& failure : failures) {
    if (!was_stopped(failure)) candidates.push_back(&failure);
  }
  if (candidates.empty()) return nullptr;
  std::stable_sort(candidates.begin(), candidates.end(), earlier);
  const Failure* first = candidates.front();
  if (!lost_peers(*first)) return first;
  // Better another reason than lost peers, and better lost peers with a reason than the bare fact.
  for (const auto is_consequence : {lost_peers, only_lost_peers}) {
    for (const Failure* candidate : candidates) {
      const bool soon = candidate->exit.time_ns - first->exit.time_ns <= kPeerLostWindowNs;
      if (soon && !is_consequence(*candidate)) return candidate;
    }
  }
  return first;
}

std::string describe(const Failure& failure, int64_t next_ns, int64_t oom_kills) {
  std::string text =
      fmt::format("FAILED  node {} rank {} (pid {})", failure.node_rank, failure.rank, failure.pid);
  if (failure.report && failure.report->step) text += fmt::format(" at step {}", *failure.report->step);
  text += ", " + how(failure.exit);
  if (next_ns > failure.exit.time_ns)
    text += fmt::format(", {} before the others",
                        short_duration(1e-9 * static_cast<double>(next_ns - failure.exit.time_ns)));
  if (failure.report) {
    append_indented(text, failure.report->message);
  } else {
    for (const std::string& line : last_lines(failure.log, 12)) text += "\n  | " + line;
  }
  const std::string advice = hint(failure.exit.signal, oom_kills);
  if (!advice.empty()) text += "\n  hint: " + advice;
  return text + "\n  log: " + failure.log.string();
}

std::vector<std::string> last_lines(const std::filesystem::path& path, size_t max_lines) {
  constexpr std::streamoff kMaxBytes = 8 << 10;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  in.seekg(std::max<std::streamoff>(0, size - kMaxBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (size > kMaxBytes && lines.size() > 1) lines.erase(lines.begin());  // cut in its middle
  if (lines.size() > max_lines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  return lines;
}

}  // namespace trainer::launch
