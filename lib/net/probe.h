#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/event_loop.h"
#include "net/connection.h"

// Pre-flight: does each node reach each other one, at the address that it is known by?

namespace trainer::net {

struct ProbePeer {
  std::string name;  // "node 3 (gpu7)"
  std::string host;  // that it tells others
  int64_t port = 0;  // where it answers
};

struct ProbeResult {
  ProbePeer peer;
  bool is_reached = false;
  double ms = 0;       // connection and handshake: three round trips
  std::string reason;  // "gpu7:41234: connection refused"
  std::string hint;    // how to mend it
};

// What a node needs so that others can probe it; as long as it lives.
std::unique_ptr<Listener> answer_probes(EventLoop& loop, std::vector<Descriptor> sockets,
                                        Credentials credentials);

class Probe {
 public:
  using OnDone = std::function<void(std::vector<ProbeResult>)>;
  virtual ~Probe() = default;
};

// Connects to all, 64 at a time, once each, and is done at `deadline_ns` at the latest: those that do not answer share
// the time out evenly, so that the last one is tried too. `on_done` is called once, from the loop, with the results in
// the order of `peers`; it may destroy the Probe.
std::unique_ptr<Probe> probe(EventLoop& loop, std::vector<ProbePeer> peers, Credentials credentials,
                             int64_t deadline_ns, Probe::OnDone on_done);

}  // namespace trainer::net
