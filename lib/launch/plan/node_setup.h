#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/plan/node_facts.h"
#include "launch/plan/placement.h"
#include "launch/plan/plan.h"
#include "launch/plan/preflight.h"

namespace trainer::launch {

// What this node gives its workers beyond the plan, and what pre-flight says of it. Found once, before any worker
// starts.
struct NodeSetup {
  Placement placement;
  std::map<std::string, std::string> network;  // variables of NCCL and Gloo
  std::vector<Check> checks;
  NodeFacts facts;
  std::vector<std::string> lines;  // for the console: what was decided, and why
};

// `address`: of this node for its peers, as digits, `address_from` says why that one; empty with one node. `hosts_output`:
// rank 0 is here. Takes milliseconds, unless names are slow to resolve.
NodeSetup set_up_node(const WorkerPlan& plan, const std::string& host, const std::string& address,
                      const std::string& address_from, bool hosts_output);

// For Join::facts.
std::string encode_facts(const NodeSetup& setup);

// What the nodes' facts and checks say together; `facts` by node rank, empty ones are passed over.
struct Inspection {
  std::string errors;  // lines for people; empty: nothing keeps the job from running
  std::string warnings;
};
Inspection inspect_nodes(const std::vector<std::string>& facts);

}  // namespace trainer::launch
