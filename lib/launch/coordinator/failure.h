#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainer::launch {

// A worker that did not end well, or a node that was lost. It travels between nodes.
struct Failure {
  int64_t node_rank = 0;
  int64_t rank = -1;  // of the worker; -1: the node itself
  bool node_lost = false;
  std::string host;
  int64_t pid = 0;
  int64_t time_ns = 0;  // monotonic, of the reader's clock, when its agent learned of it
  int code = 0;         // exit status; 0 with a signal
  int signal = 0;       // that killed it; 0: none
  bool core_dumped = false;
  bool is_trainer = true;   // the worker is this program: its exit code has our meaning
  bool after_stop = false;  // the agent had told it to stop by then
  std::string message;      // its own report (report/error_file.h), or why the node is lost; empty: none
  int64_t step = -1;        // optimizer steps done; -1: not known
  std::string hint;         // of what may have caused it; empty: none
  std::string log;          // path of its standard error's
  std::vector<std::string> tail;  // last lines of that

  int program_code() const { return signal != 0 ? 128 + signal : code; }
};

// The one that failed by itself first. A rank that only lost its peers (exit code 4) yields to one that
// failed for another reason within two seconds: a process closes its connections before it is dead, so its
// peers may be seen to die first. Null when none failed by itself.
const Failure* root_cause(const std::vector<Failure>& failures);

// Exit code of a node or a job that was told to stop. signal 0: by a notice; then it is to be started again in any case.
int stop_code(int signal, bool saved);

// Whether it is what a rank says whose peers are gone: the cause may follow.
bool lost_peers(const Failure& failure);
// The same of any program, by its words.
bool blames_peers(const Failure& failure);

// The report that a job's output ends with: who, when, why, where to read on. `next_ns`: when the next worker
// ended, 0 when none did later. `num_nodes`: above 1 the host is named.
std::string describe(const Failure& failure, int64_t next_ns, int64_t num_nodes);

// "node 1 rank 5 (pid 4711) at step 312, exit code 3"
std::string describe_briefly(const Failure& failure, int64_t num_nodes);

// torchelastic's error file of the whole job: {"message":{"message":...,"errorCode":...,"extraInfo":{...}}}.
std::string error_file_text(const Failure& failure, const std::string& description);

// What may have caused an end like this, for people; empty: nothing to add. `oom_kills`: processes that the kernel
// killed for memory during the attempt; `memory_limit_bytes` of this node.
std::string hint_for(const Failure& failure, int64_t oom_kills, int64_t memory_limit_bytes);

}  // namespace trainer::launch
