#include "launch/coordinator/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"

namespace trainer::launch {
namespace {

constexpr int64_t kPeerLostWindowNs = 2'000'000'000;

// By the words of dist/failure.cpp.
bool only_lost_peers(const Failure& failure) {
  return lost_peers(failure) && failure.message.find("a peer has probably died") != std::string::npos;
}

// Told to stop, and nothing says that it failed before.
bool was_stopped(const Failure& failure) {
  return failure.after_stop && failure.message.empty();
}

bool earlier(const Failure* a, const Failure* b) {
  return a->after_stop != b->after_stop ? b->after_stop : a->time_ns < b->time_ns;
}

std::string how(const Failure& failure) {
  if (failure.node_lost) return "lost";
  if (failure.signal == 0) return fmt::format("exit code {}", failure.code);
  const char* name = ::sigabbrev_np(failure.signal);
  return fmt::format("killed by signal {} (SIG{}){}", failure.signal, name != nullptr ? name : "?",
                     failure.core_dumped ? ", core dumped" : "");
}

bool contains_any(std::string_view text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string_view::npos; });
}

std::string words_of(const Failure& failure) {
  std::string words = failure.message;
  for (const std::string& line : failure.tail) words += "\n" + line;
  return words;
}

std::string hint_for_signal(int signal, int64_t oom_kills, int64_t memory_limit_bytes) {
  switch (signal) {
    case SIGKILL: {
      const std::string limit = "the limit here is " + binary_bytes(memory_limit_bytes);
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

int stop_code(int signal, bool saved) {
  return saved || signal == 0 ? static_cast<int>(ExitCode::kPreempted) : 128 + signal;
}

bool blames_peers(const Failure& failure) {
  return lost_peers(failure) ||
         (failure.rank >= 0 &&
          contains_any(words_of(failure),
                       {"Connection closed by peer", "Connection reset by peer", "Broken pipe",
                        "remote process exited or there was a network error", "Socket Timeout"}));
}

bool lost_peers(const Failure& failure) {
  return failure.rank >= 0 && failure.is_trainer && failure.code == static_cast<int>(ExitCode::kDistributed);
}

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
      const bool soon = candidate->time_ns - first->time_ns <= kPeerLostWindowNs;
      if (soon && !is_consequence(*candidate)) return candidate;
    }
  }
  return first;
}

std::string describe_briefly(const Failure& failure, int64_t num_nodes) {
  const std::string host = num_nodes > 1 && !failure.host.empty() ? "host " + failure.host : "";
  std::string text = fmt::format("node {}", failure.node_rank);
  if (failure.rank >= 0) {
    text += fmt::format(" rank {} ({}{}pid {})", failure.rank, host, host.empty() ? "" : ", ", failure.pid);
  } else if (!host.empty()) {
    text += fmt::format(" ({})", host);
  }
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  return text + ", " + how(failure);
}

std::string describe(const Failure& failure, int64_t next_ns, int64_t num_nodes) {
  std::string text = "FAILED  " + describe_briefly(failure, num_nodes);
  if (next_ns > failure.time_ns)
    text += fmt::format(", {} before the others",
                        short_duration(1e-9 * static_cast<double>(next_ns - failure.time_ns)));
  append_indented(text, failure.message);
  const bool has_stack = failure.signal != 0 && !failure.message.empty();  // the report's, its names readable
  for (const std::string& line : failure.tail) {  // what the report has said need not be said again
    if (has_stack) break;
    if (line.empty() || failure.message.find(line) == std::string::npos) text += "\n  | " + line;
  }
  if (!failure.hint.empty()) text += "\n  hint: " + failure.hint;
  if (!failure.log.empty()) text += "\n  log: " + failure.log;
  return text;
}

std::string error_file_text(const Failure& failure, const std::string& description) {
  nlohmann::json extra = {
      {"py_callstack", description}, {"timestamp", std::to_string(static_cast<int64_t>(unix_time_s()))},
      {"node", failure.node_rank},   {"rank", failure.rank},
      {"host", failure.host},        {"pid", failure.pid},
      {"log", failure.log}};
  if (failure.signal != 0) extra["signal"] = failure.signal;
  if (failure.core_dumped) extra["core_dumped"] = true;
  if (failure.step >= 0) extra["step"] = failure.step;
  if (!failure.hint.empty()) extra["hint"] = failure.hint;
  const nlohmann::json file = {
      {"message",
       {{"message", failure.message.empty() ? describe_briefly(failure, 2) : failure.message},
        {"errorCode", failure.program_code()},
        {"extraInfo", extra}}}};
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string hint_for(const Failure& failure, int64_t oom_kills, int64_t memory_limit_bytes) {
  if (failure.signal != 0) return hint_for_signal(failure.signal, oom_kills, memory_limit_bytes);
  const std::string said = words_of(failure);
  if (said.find("hint:") != std::string::npos) return {};
  if (contains_any(said, {"CUDA out of memory", "CUDA error: out of memory", "HIP out of memory"}))
    return "the GPU's memory is full: a smaller batch, gradient accumulation or bf16 need less; nvidia-smi "
           "tells "
           "whether other processes hold some";
  if (contains_any(said, {"EADDRINUSE", "Address already in use", "address already in use"}))
    return "another process listens on that port (ss -ltnp tells which)";
  if (blames_peers(failure))
    return "another rank or the network between them failed first: see the other ranks' logs";
  if (contains_any(said, {"unable to write to file </torch_", "insufficient shared memory", "/dev/shm"}))
    return "/dev/shm is too small for the data loader's workers (docker run --shm-size, or an emptyDir of "
           "medium "
           "Memory in Kubernetes)";
  if (contains_any(said, {"No space left on device"})) return "a disk is full (df -h)";
  return {};
}

}  // namespace trainer::launch
