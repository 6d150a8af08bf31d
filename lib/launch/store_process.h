#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "core/event_loop.h"
#include "launch/plan/plan.h"
#include "process/process.h"
#include "process/reaper.h"

namespace trainer::launch {

// The TCPStore of one attempt: a socket that listens from the start, so that nobody else can take its port, and a
// process that serves it (`trainer __store`), so that this one needs no LibTorch. Ends with the object.
class StoreProcess {
 public:
  // `host`: what workers connect to; the socket is bound to its address. `now`: start the process at once, else
  // when the first client comes. `on_died`: why, for people.
  StoreProcess(EventLoop& loop, process::Reaper& reaper, const sigset_t& mask, const std::string& host,
               bool now, std::function<void(const std::string&)> on_died);
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  void start();
  void on_exit();

  EventLoop& loop_;
  process::Reaper& reaper_;
  sigset_t mask_;
  std::function<void(const std::string&)> on_died_;
  Descriptor socket_;
  Endpoint endpoint_;
  process::Process process_;
};

}  // namespace trainer::launch
