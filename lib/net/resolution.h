#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/event_loop.h"
#include "net/address.h"

namespace trainer::net {

// Looks up a name on a thread of its own: DNS may take long, and getaddrinfo can't be told to stop. Destroying this
// leaves such a thread behind; it ends with its look-up.
class Resolution {
 public:
  // `on_resolved` is called once, by the loop, and may destroy this.
  Resolution(EventLoop& loop, const std::string& host, int64_t port,
             std::function<void(Resolved)> on_resolved);
  ~Resolution();
  Resolution(const Resolution&) = delete;
  Resolution& operator=(const Resolution&) = delete;

 private:
  void end(Resolved resolved);

  struct Shared;
  EventLoop& loop_;
  std::shared_ptr<Shared> shared_;
  std::function<void(Resolved)> on_resolved_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace trainer::net
