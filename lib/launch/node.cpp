#include "launch/node.h"

#include <exception>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace trainer::launch {

Node::Node(const GroupContext& context, Hooks hooks)
    : context_(context),
      hooks_(std::move(hooks)),
      watch_(context.loop, context.plan, [this](const Message& message) { send(message); }) {}

Node::~Node() = default;

void Node::send(const Message& message) {
  if (!lost_) hooks_.send(message);
}

bool Node::is_current(int64_t attempt) const {
  return group_ != nullptr && group_->assignment().attempt == attempt;
}

void Node::receive(const Message& message) {
  if (const auto* start = std::get_if<Start>(&message)) {
    this->start(start->assignment);
  } else if (const auto* stop = std::get_if<Stop>(&message)) {
    if (!is_current(stop->attempt)) {
      send(Ended{stop->attempt, 0, -1});
    } else if (stop->at_once) {
      group_->kill();
    } else {
      group_->stop(SIGTERM, stop->kill);
    }
  } else if (const auto* raise = std::get_if<Raise>(&message)) {
    if (!is_current(raise->attempt)) return;
    group_->raise(raise->id, raise->stop, raise->signal);
    send(Raised{raise->attempt, raise->id});
  } else if (const auto* go = std::get_if<Go>(&message)) {
    if (is_current(go->attempt)) group_->go(go->id);
  } else if (const auto* ask = std::get_if<AskStatus>(&message)) {
    if (is_current(ask->attempt)) send(Status{ask->attempt, -1, group_->status()});
  } else if (const auto* ask_stacks = std::get_if<AskStacks>(&message)) {
    if (is_current(ask_stacks->attempt)) watch_.send_stacks(*ask_stacks);
  } else if (const auto* note = std::get_if<Note>(&message)) {
    context_.outputs.console().line(2, "", note->text);
  } else if (const auto* finish = std::get_if<Finish>(&message)) {
    finish_ = *finish;
    if (group_ == nullptr) {
      hooks_.on_finished(*finish_);
    } else {
      group_->kill();  // it should be gone by now
    }
  }
}

void Node::start(const Assignment& assignment) {
  if (group_ != nullptr) return;
  lost_ = false;
  last_ = assignment;
  try {
    group_ = std::make_unique<WorkerGroup>(
        context_, assignment,
        WorkerGroup::Hooks{[this, attempt = assignment.attempt](const Failure& failure) {
                             send(Exited{attempt, failure});
                           },
                           // Deferred: the group is in the middle of a call.
                           [this] { context_.loop.defer([this] { on_ended(); }); }});
    watch_.start(*group_);
  } catch (const Error& error) {
    Failure failure;
    failure.node_rank = assignment.node_rank;
    failure.host = context_.host;
    failure.time_ns = monotonic_ns();
    failure.code = static_cast<int>(error.code());
    failure.message = error.what();
    send(Exited{assignment.attempt, failure});
    send(Ended{assignment.attempt, 0, -1});
  }
}

void Node::on_ended() {
  watch_.stop();
  const Ended ended{group_->assignment().attempt, group_->num_preempted(), group_->last_step()};
  group_.reset();
  send(ended);
  if (finish_) {
    hooks_.on_finished(*finish_);
  } else if (lost_) {
    hooks_.on_idle();
  }
}

void Node::lose_coordinator() {
  lost_ = true;
  if (group_ != nullptr) {
    group_->stop(SIGTERM);
  } else {
    context_.loop.defer([this] { hooks_.on_idle(); });
  }
}

}  // namespace trainer::launch
