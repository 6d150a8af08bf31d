#pragma once

#include <cstdint>

#include "core/descriptor.h"

namespace trainer::net {

// A listening TCP socket, close-on-exec. port 0: a free one. Throws DistributedError naming the port.
Descriptor listen_on(int64_t port, bool loopback_only);
int64_t port_of(const Descriptor& socket);

}  // namespace trainer::net
