#pragma once

namespace trainer::dist {

// Serves a c10d TCPStore on `listening_fd`, a listening TCP socket, until the process is killed. Clients that connected
// before wait in the socket's queue. No thread but the store's own does anything. Throws DistributedError when the
// descriptor is no such socket.
[[noreturn]] void serve_store(int listening_fd);

}  // namespace trainer::dist
