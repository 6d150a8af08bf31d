#include "train/requests.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <atomic>
#include <csignal>

namespace trainer::train {
namespace {

using report::Request;

// A signal handler takes no argument.
std::atomic<bool> save_signalled{false}, stop_signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  (signal == SIGTERM ? stop_signalled : save_signalled).store(true);
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = flags | SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

// The step and the kind of a request, as one number in the store: a rank whose page has a newer request by now learns of
// this one there.
int64_t encode(int64_t step, Request request) {
  return 2 * step + (request == Request::kStop ? 1 : 0);
}

}  // namespace

Requests::Requests(report::ProgressPage& page, dist::Communicator& communicator, c10::Device device)
    : page_(page), communicator_(communicator), device_(device) {
  save_signalled = stop_signalled = false;
  if (page_.attached.load() != 0) {
    // It is for the agent, but some schedulers send it to all processes of the job.
    ::signal(SIGUSR1, SIG_IGN);
    return;
  }
  handle(SIGTERM, on_signal, SA_RESETHAND);
  handle(SIGUSR1, on_signal, 0);
}

Requests::~Requests() {
  if (page_.attached.load() != 0) return;
  handle(SIGTERM, SIG_DFL, 0);
  handle(SIGUSR1, SIG_IGN, 0);  // too late to be met, and no reason to die
}

Request Requests::after_step(int64_t step) {
  limit_run_ahead(step);
  return page_.attached.load(std::memory_order_relaxed) != 0 ? from_agent(step) : voted_;
}

void Requests::limit_run_ahead(int64_t step) {
  if (device_.is_cpu()) return;
  std::optional<c10::Event>& end = step_ends_[static_cast<size_t>(step % kAhead)];
  if (end) end->synchronize();
  end.emplace(device_.type());
  end->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

Request Requests::from_agent(int64_t step) {
  const uint32_t newest = page_.request_id.load(std::memory_order_acquire);
  const uint32_t handled = page_.handled_id.load(std::memory_order_relaxed);
  if (newest == handled) return Request::kNone;
  const uint32_t go = page_.go_id.load(std::memory_order_acquire);
  const Request request = page_.request.load(std::memory_order_relaxed);
  meeting_id_ = newest;
  if (communicator_.size() == 1) return request;
  const int64_t target = step + (device_.is_cpu() ? 0 : kAhead) + 1;
  for (; meeting_id_ != handled && newest - meeting_id_ < kMostOpen; --meeting_id_) {
    const auto proposal = meeting_id_ == go ? std::optional(encode(target, request)) : std::nullopt;
    const auto agreed = communicator_.first_proposal(fmt::format("request/{}", meeting_id_), proposal);
    if (agreed == encode(step, Request::kStop)) return Request::kStop;
    if (agreed == encode(step, Request::kSave)) return Request::kSave;
  }
  return Request::kNone;
}

void Requests::done(int64_t step) {
  page_.saved_step.store(step, std::memory_order_relaxed);
  page_.handled_id.store(meeting_id_, std::memory_order_release);
  voted_ = Request::kNone;
}

Votes Requests::votes() const {
  return {save_signalled.load() ? 1.0 : 0.0, stop_signalled.load() ? 1.0 : 0.0};
}

void Requests::count(const Votes& all) {
  if (all.save > 0) {
    voted_ = Request::kSave;
    save_signalled = false;
  }
  if (all.stop > 0) voted_ = Request::kStop;
}

}  // namespace trainer::train
