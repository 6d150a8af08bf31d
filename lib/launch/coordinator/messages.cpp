#include "launch/coordinator/messages.h"

#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace trainer::net {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Endpoint, host, port)
}  // namespace trainer::net

namespace trainer::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Failure, node_rank, rank, node_lost, host, pid, time_ns, code, signal,
                                   core_dumped, is_trainer, after_stop, message, step, hint, log, tail)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Assignment, attempt, node_rank, num_nodes, first_rank, world_size,
                                   restarts, master_addr, master_port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankStatus, rank, pid, attached, step, phase, since_beat_s, busy_ns, state)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Join, host, pid, node_rank, previous_rank, last_attempt, restarts, nproc,
                                   version, spec_hash, address, probe_port, facts, hosting)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Exited, attempt, failure)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ended, attempt, num_preempted, last_step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leave, what, signal, at_once)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Raised, attempt, id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stalled, attempt, rank, timeout_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Status, attempt, interval, ranks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stacks, attempt, rank, text, log)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Probed, problems)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refused, reason, final)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Probe, hosts, peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Start, assignment)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Stop, attempt, at_once, kill)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Raise, attempt, id, stop, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Go, attempt, id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AskStatus, attempt)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AskStacks, attempt, rank)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Note, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finish, code, text, error_file)

static void to_json(json& j, const AskSave&) {
  j = json::object();
}
static void from_json(const json&, AskSave&) {}
static void to_json(json& j, const Accepted&) {
  j = json::object();
}
static void from_json(const json&, Accepted&) {}
static void to_json(json& j, const Alive&) {
  j = json::object();
}
static void from_json(const json&, Alive&) {}
static void to_json(json& j, const AskAlive&) {
  j = json::object();
}
static void from_json(const json&, AskAlive&) {}

namespace {

constexpr std::array<const char*, std::variant_size_v<Message>> kNames = {
    "join",   "exited", "ended",      "leave",      "ask_save",  "raised", "stalled", "status",
    "stacks", "alive",  "probed",     "refused",    "accepted",  "probe",  "start",   "stop",
    "raise",  "go",     "ask_status", "ask_stacks", "ask_alive", "note",   "finish"};

template <size_t I = 0>
Message decode_as(size_t index, const json& value) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (index == I) return value.get<std::variant_alternative_t<I, Message>>();
    return decode_as<I + 1>(index, value);
  }
  fail<DistributedError>("a message of another version of trainer");
}

}  // namespace

std::string encode(const Message& message) {
  json value = std::visit([](const auto& m) { return json(m); }, message);
  value["type"] = kNames.at(message.index());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);  // logs hold any bytes
}

Message decode(std::string_view text) {
  try {
    const json value = json::parse(text);
    const auto type = value.at("type").get<std::string>();
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (type == kNames[i]) return decode_as(i, value);
    }
    fail<DistributedError>("a message of unknown type \"{}\": another version of trainer", type);
  } catch (const json::exception& error) {
    fail<DistributedError>("a malformed message: {}", error.what());
  }
}

}  // namespace trainer::launch
