#pragma once

#include <string>

#include "job/world.h"

namespace trainer::dist {

// The address of this host, as digits, that peers on other nodes can reach: that of the interface which
// routes to MASTER_ADDR; 127.0.0.1 when all ranks are on one node. Throws DistributedError when the name does
// not resolve, or resolves to loopback in a job of several nodes.
std::string reachable_address(const World& world);

}  // namespace trainer::dist
