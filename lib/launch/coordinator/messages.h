#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launch/coordinator/failure.h"
#include "launch/plan/plan.h"
#include "report/progress.h"

// What the nodes of a job and its coordinator tell each other. JSON on the wire, so that a capture can be read.

namespace trainer::launch {

// How far one worker is.
struct RankStatus {
  int64_t rank = 0;
  int64_t pid = 0;
  bool attached = false;  // it tells its progress; the rest means nothing otherwise
  int64_t step = 0;
  uint32_t phase = 0;       // report::Phase
  double since_beat_s = 0;  // without a sign of progress
  int64_t busy_ns = 0;      // outside of waiting for peers, so far
  int state = 0;            // process::state_of()
};

// --- from a node ---

struct Join {  // first message of a connection
  std::string host;
  int64_t pid = 0;
  int64_t node_rank = -1;  // as the user said; -1: any
  // Of the last attempt that it took part in: a coordinator that takes over goes on from there.
  int64_t previous_rank = -1;
  int64_t last_attempt = -1;
  int64_t restarts = 0;
  int64_t nproc = 1;
  std::string version;  // of trainer
  std::string spec_hash;
  std::string address;     // of its peers' connections
  int64_t probe_port = 0;  // where it answers probes
  std::string facts;       // encode_facts()
  // A node that hosts a coordinator with no attempt running looks for one that is further: the number of its endpoint;
  // -1: it hosts none.
  int64_t hosting = -1;
};
struct Exited {  // one worker, not well
  int64_t attempt = 0;
  Failure failure;
};
struct Ended {  // all workers of the node are gone
  int64_t attempt = 0;
  int64_t num_preempted = 0;  // of them by exit code 75
  int64_t last_step = -1;     // the furthest rank's; -1: none told
};
struct Leave {  // the node was told to stop; `what` for people: "SIGTERM", "launch.preempt_file"
  std::string what;
  int signal = 0;        // 0: a notice
  bool at_once = false;  // a second Ctrl-C
};
struct AskSave {};  // SIGUSR1
struct Raised {     // all of the node's workers can see the request
  int64_t attempt = 0;
  int64_t id = 0;
};
struct Stalled {  // a rank makes no progress
  int64_t attempt = 0;
  int64_t rank = 0;
  double timeout_s = 0;
};
struct Status {
  int64_t attempt = 0;
  int64_t interval = 0;  // number of the straggler interval; -1: an answer to AskStatus
  std::vector<RankStatus> ranks;
};
struct Stacks {  // answer to AskStacks
  int64_t attempt = 0;
  int64_t rank = 0;
  std::string text;
  std::string log;  // path of its standard error's
};
struct Alive {};  // answer to AskAlive
struct Probed {   // answer to Probe: empty when the node reaches all peers
  std::vector<std::string> problems;
};

// --- from the coordinator ---

struct Refused {  // and then the connection is closed; `final`: trying again is of no use
  std::string reason;
  bool final = true;
};
struct Accepted {};  // the answer to Join, else
struct Probe {
  std::vector<std::string> hosts;  // of peers, for people
  std::vector<Endpoint> peers;
};
struct Start {
  Assignment assignment;
};
struct Stop {  // SIGTERM, then SIGKILL; `at_once`: SIGKILL
  int64_t attempt = 0;
  bool at_once = false;
  std::vector<int64_t> kill;  // ranks that would not heed SIGTERM
};
struct Raise {  // phase one of a request to the workers
  int64_t attempt = 0;
  int64_t id = 0;
  bool stop = false;  // else save and go on
  int signal = 0;     // for programs that know no requests
};
struct Go {  // phase two
  int64_t attempt = 0;
  int64_t id = 0;
};
struct AskStatus {
  int64_t attempt = 0;
};
struct AskStacks {
  int64_t attempt = 0;
  int64_t rank = 0;
};
struct AskAlive {};  // another node wants to be what this one is
struct Note {        // for the node's console
  std::string text;
};
struct Finish {
  int code = 0;
  std::string text;        // for the console, empty: nothing
  std::string error_file;  // torchelastic's, of the whole job; empty: it did not fail
};

using Message =
    std::variant<Join, Exited, Ended, Leave, AskSave, Raised, Stalled, Status, Stacks, Alive, Probed, Refused,
                 Accepted, Probe, Start, Stop, Raise, Go, AskStatus, AskStacks, AskAlive, Note, Finish>;

std::string encode(const Message& message);
// Throws DistributedError when it is not one.
Message decode(std::string_view text);

}  // namespace trainer::launch
