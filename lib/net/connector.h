#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "net/connection.h"
#include "net/failure.h"

namespace trainer::net {

// connect() of connection.h, with the failure's kind, and with one try only if wanted: then an address may take all
// the time there is, and the first failure of all addresses ends it.
enum class Tries { kOne, kUntilDeadline };
std::unique_ptr<Connector> connect(EventLoop& loop, std::string host, int64_t port, Credentials credentials,
                                   int64_t deadline_ns, Tries tries,
                                   std::function<void(std::unique_ptr<Connection>)> on_connected,
                                   std::function<void(const Failure&)> on_failed);

}  // namespace trainer::net
