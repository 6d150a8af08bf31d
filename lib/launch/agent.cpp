#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "launch/coordinator/coordinator.h"
#include "launch/coordinator/elsewhere.h"
#include "launch/coordinator/link.h"
#include "launch/coordinator/rendezvous.h"
#include "launch/node.h"
#include "launch/output/console.h"
#include "launch/output/output_pump.h"
#include "launch/plan/node_setup.h"
#include "launch/preempt_trigger.h"
#include "launch/store_process.h"
#include "net/address.h"
#include "net/connection.h"
#include "net/probe.h"
#include "net/socket.h"
#include "process/guard.h"
#include "process/reaper.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;

constexpr double kProbeS = 10;
constexpr int kSlowReaderMs = 5000;  // without reading anything, at the end of a job that failed
constexpr double kFarewellS = 3;     // for the other nodes to take their Finish

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<int> handled_signals(const WorkerPlan& plan) {
  std::vector<int> signals = plan.stop_signals;
  signals.push_back(SIGUSR1);
  return signals;
}

class Agent {
 public:
  explicit Agent(const WorkerPlan& plan);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  AgentResult run();

 private:
  // A node of the job, by its connection; the coordinator's side.
  struct Peer {
    std::unique_ptr<Link> link;
    bool joined = false;
    bool dropped = false;
  };

  void set_up(const std::string& address, const std::string& address_from, bool hosts_output);
  void meet(int lost_endpoint);
  void host(net::ListeningSockets sockets, const Endpoint& endpoint);
  void make_coordinator();
  void join(std::unique_ptr<net::Connection> connection, const Endpoint& endpoint);
  Join make_join() const;
  // The address that peers are told.
  std::string advertised(const std::string& otherwise) const {
    if (!plan_.local_addr.empty()) return plan_.local_addr;
    return plan_.interface.empty() ? otherwise : net::address_of_interface(plan_.interface);
  }
  net::Credentials credentials() const { return {plan_.run_id, plan_.token}; }
  int64_t index_of(const Endpoint& endpoint) const {
    return std::find(plan_.endpoints.begin(), plan_.endpoints.end(), endpoint) - plan_.endpoints.begin();
  }
  void answer_probes(const std::string& address, Join& join);
  void probe(const Probe& probe);
  void on_peer(std::unique_ptr<net::Connection> connection);
  void on_peer_message(int64_t id, const Message& message);
  void drop(int64_t id);
  Endpoint open_store(int64_t world_size);

  void look_around();
  void move_to(const Endpoint& endpoint);

  void to_coordinator(const Message& message);
  void from_coordinator(const Message& message);
  void on_lost(const std::string& reason);
  void on_idle();
  void on_signal();
  void leave(const std::string& what, int signal);
  void set_timer();
  void finish(const Finish& finish);
  void print(const std::string& text) { console_.line(2, "", text); }

  const WorkerPlan& plan_;
  const process::SignalMask signals_;
  EventLoop loop_;
  Console console_{1, 2, plan_.log_dir.string()};
  OutputPump outputs_{loop_, console_};
  process::Guard guard_;
  process::Reaper reaper_;
  Descriptor signal_fd_;
  std::string host_ = host_name();
  NodeSetup setup_;
  GroupContext context_{loop_, outputs_, reaper_, guard_, plan_, setup_, signals_.old(), host_};
  Node node_;
  PreemptTrigger trigger_;

  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Link> link_;  // to the coordinator, when it is another node's
  Endpoint endpoint_;           // where it is
  std::string why_lost_;
  std::unique_ptr<net::Listener> probe_answerer_;
  std::unique_ptr<net::Probe> probe_;

  // The coordinator, when it is here.
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<net::Listener> listener_;
  std::map<int64_t, Peer> peers_;
  int64_t last_peer_ = 0;
  std::unique_ptr<StoreProcess> store_;
  std::optional<DirectoryLock> lock_;  // of the job's output directory
  EventLoop::TimerId timer_ = 0;
  std::unique_ptr<Elsewhere> elsewhere_;

  int num_signals_ = 0;
  int last_signal_ = 0;
  std::optional<Finish> finish_;
};

Agent::Agent(const WorkerPlan& plan)
    : plan_(plan),
      signals_(handled_signals(plan)),
      signal_fd_(::signalfd(-1, &signals_.handled(), SFD_CLOEXEC | SFD_NONBLOCK)),
      node_(context_, {[this](const Message& message) { to_coordinator(message); },
                       [this](const Finish& finish) { this->finish(finish); }, [this] { on_idle(); }}),
      trigger_(loop_, plan, [this](const std::string& what) { leave(what, 0); }) {
  loop_.add(signal_fd_.get(), EPOLLIN, [this](uint32_t) { on_signal(); });
}

Agent::~Agent() = default;

AgentResult Agent::run() {
  if (plan_.max_nodes == 1 && plan_.endpoints.empty()) {
    set_up("", "", true);
    make_coordinator();
  } else {
    meet(-1);
  }
  while (!finish_) {
    outputs_.flush();
    loop_.run_once();
  }
  // The other nodes close when they have understood.
  const int64_t end_ns = monotonic_ns() + to_ns(kFarewellS);
  while (!peers_.empty() && monotonic_ns() < end_ns && num_signals_ < 2) {
    outputs_.flush();
    loop_.run_once(50'000'000);
  }
  store_.reset();
  signals_.unblock();  // while somebody's pager is slow to read the rest, Ctrl-C works as anywhere
  // Waits for a slow reader, but not for ever where somebody waits for the exit code.
  console_.finish(num_signals_ > 0 ? 1000 : finish_->code != 0 ? kSlowReaderMs : -1);
  return {finish_->code, console_.has_shown_all()};
}

// --- meeting the other nodes ---

void Agent::set_up(const std::string& address, const std::string& address_from, bool hosts_output) {
  if (node_.last()) return;  // a new coordinator, but the node is the same
  setup_ = set_up_node(plan_, host_, address, address_from, hosts_output);
  for (const std::string& line : setup_.lines) print(line);
}

void Agent::meet(int lost_endpoint) {
  if (plan_.node_rank != 0) {
    std::string where;
    for (const Endpoint& endpoint : plan_.endpoints)
      where += (where.empty() ? "" : ", ") + net::host_port(endpoint.host, endpoint.port);
    print(fmt::format("meeting the other nodes at {}, at most {} s (launch.join_timeout_s)", where,
                      plan_.join_timeout_s));
  }
  rendezvous_ = std::make_unique<Rendezvous>(
      loop_, plan_, lost_endpoint,
      Rendezvous::Hooks{[this](net::ListeningSockets sockets, const Endpoint& endpoint) {
                          host(std::move(sockets), endpoint);
                        },
                        [this](std::unique_ptr<net::Connection> connection, const Endpoint& endpoint) {
                          join(std::move(connection), endpoint);
                        },
                        [this](const std::string& reason) {
                          finish({static_cast<int>(ExitCode::kDistributed),
                                  "FAILED  cannot meet the other nodes: " + reason +
                                      (why_lost_.empty() ? "" : "\n  " + why_lost_),
                                  ""});
                        }});
}

void Agent::host(net::ListeningSockets sockets, const Endpoint& endpoint) {
  endpoint_ = endpoint;
  if (!sockets.warning.empty()) print("warning: " + sockets.warning);
  listener_ =
      net::listen(loop_, std::move(sockets.sockets), credentials(),
                  [this](std::unique_ptr<net::Connection> connection) { on_peer(std::move(connection)); });
  const net::Resolved resolved = net::resolve(advertised(endpoint.host), endpoint.port);
  set_up(resolved.addresses.empty() ? endpoint.host : resolved.addresses.front().host(),
         plan_.local_addr.empty() ? "the endpoint" : "launch.local_addr", true);
  make_coordinator();
  const std::string nodes = plan_.min_nodes == plan_.max_nodes
                                ? std::to_string(plan_.max_nodes)
                                : fmt::format("{} to {}", plan_.min_nodes, plan_.max_nodes);
  print(fmt::format("waiting for {} nodes at {}, at most {} s", nodes,
                    net::host_port(endpoint.host, endpoint.port), plan_.join_timeout_s));
}

void Agent::make_coordinator() {
  // Here alone: the other nodes may share the file system.
  if (!plan_.output_dir.empty() && !plan_.preflight_only && !lock_) lock_.emplace(plan_.output_dir);
  if (std::error_code error; !node_.last())
    fs::remove(plan_.log_dir / "error.json", error);  // an earlier run's
  const auto send = [this](int64_t id, const Message& message) {
    if (id == 0) {
      loop_.defer([this, message] { from_coordinator(message); });
    } else if (const auto peer = peers_.find(id); peer != peers_.end()) {
      peer->second.link->send(message);
    }
  };
  coordinator_ = std::make_unique<Coordinator>(
      plan_,
      Coordinator::Hooks{send, [this](int64_t id) { drop(id); },
                         [this](int64_t world_size) { return open_store(world_size); }},
      monotonic_ns());
  Join join = make_join();
  if (plan_.max_nodes > 1) answer_probes(advertised(endpoint_.host), join);
  coordinator_->join(0, join, monotonic_ns());
  set_timer();
}

// While the coordinator here gathers nodes, the other endpoints are asked: this one may have been cut off.
void Agent::look_around() {
  const bool looks = coordinator_ != nullptr && coordinator_->is_gathering() && !plan_.is_fixed();
  if (looks == (elsewhere_ != nullptr)) return;
  elsewhere_.reset();
  if (!looks) return;
  Join join = make_join();
  join.last_attempt = coordinator_->attempt();
  join.hosting = index_of(endpoint_);
  elsewhere_ = std::make_unique<Elsewhere>(loop_, plan_, endpoint_, join,
                                           [this](const Endpoint& endpoint) { move_to(endpoint); });
}

// The nodes that had come here follow.
void Agent::move_to(const Endpoint& endpoint) {
  print(fmt::format("the job goes on at {}: moving there", net::host_port(endpoint.host, endpoint.port)));
  loop_.cancel(timer_);
  coordinator_.reset();
  elsewhere_.reset();
  peers_.clear();
  listener_.reset();
  why_lost_.clear();
  meet(static_cast<int>(index_of(endpoint_)));
}

Join Agent::make_join() const {
  Join join;
  join.host = host_;
  join.pid = ::getpid();
  join.node_rank = plan_.node_rank;
  if (const auto& last = node_.last()) {
    join.previous_rank = last->node_rank;
    join.last_attempt = last->attempt;
    join.restarts = last->restarts;
  }
  join.nproc = plan_.nproc;
  join.version = TRAINER_VERSION;
  join.spec_hash =
      fmt::format("job {}, nodes {}:{}, max_restarts {}", plan_.spec_hash.empty() ? "-" : plan_.spec_hash,
                  plan_.min_nodes, plan_.max_nodes, plan_.max_restarts);
  join.facts = encode_facts(setup_);
  return join;
}

void Agent::join(std::unique_ptr<net::Connection> connection, const Endpoint& endpoint) {
  endpoint_ = endpoint;
  link_ = std::make_unique<Link>(
      loop_, std::move(connection), plan_.heartbeat_s, plan_.heartbeat_timeout_s,
      Link::Hooks{[this](const Message& message) { from_coordinator(message); },
                  [this](const std::string& reason) {
                    loop_.defer([this, reason] { on_lost(reason); });  // the link is in the middle of a call
                  }});
  const std::string address = advertised(link_->local_address());
  set_up(address, plan_.local_addr.empty() ? "route to " + endpoint.host : "launch.local_addr",
         plan_.node_rank == 0);
  Join join = make_join();
  answer_probes(address, join);
  link_->send(join);
}

// `address`: where peers reach this node.
void Agent::answer_probes(const std::string& address, Join& join) {
  net::ListeningSockets listening = net::listen_at(address, 0, "launch.local_addr");
  probe_answerer_ = net::answer_probes(loop_, std::move(listening.sockets), credentials());
  join.address = address;
  join.probe_port = listening.port;
}

void Agent::probe(const Probe& probe) {
  std::vector<net::ProbePeer> peers;
  for (size_t i = 0; i < probe.peers.size(); ++i)
    peers.push_back({probe.hosts[i], probe.peers[i].host, probe.peers[i].port});
  probe_ = net::probe(
      loop_, std::move(peers), credentials(), monotonic_ns() + to_ns(kProbeS),
      [this](const std::vector<net::ProbeResult>& results) {
        Probed probed;
        for (const net::ProbeResult& result : results) {
          if (result.is_reached) continue;
          probed.problems.push_back(fmt::format("{}: {}{}{}", result.peer.name, result.reason,
                                                result.hint.empty() ? "" : "\n  hint: ", result.hint));
        }
        to_coordinator(probed);
      });
}

void Agent::on_peer(std::unique_ptr<net::Connection> connection) {
  const int64_t id = ++last_peer_;
  Peer& peer = peers_[id];
  peer.link =
      std::make_unique<Link>(loop_, std::move(connection), plan_.heartbeat_s, plan_.heartbeat_timeout_s,
                             Link::Hooks{[this, id](const Message& message) { on_peer_message(id, message); },
                                         [this, id](const std::string& reason) {
                                           loop_.defer([this, id, reason] {
                                             const auto found = peers_.find(id);
                                             if (found == peers_.end()) return;
                                             const bool told = found->second.joined && !found->second.dropped;
                                             peers_.erase(found);
                                             if (told) coordinator_->lose(id, reason, monotonic_ns());
                                             set_timer();
                                           });
                                         }});
}

void Agent::on_peer_message(int64_t id, const Message& message) {
  Peer& peer = peers_.at(id);
  if (peer.dropped) return;
  if (const auto* join = std::get_if<Join>(&message); join != nullptr && !peer.joined) {
    if (join->hosting >= 0 && !coordinator_->is_further_than(*join, index_of(endpoint_) < join->hosting)) {
      peer.link->send(Refused{"this coordinator is no further", false});
      return drop(id);
    }
    peer.joined = true;
    coordinator_->join(id, *join, monotonic_ns());
  } else if (peer.joined) {
    coordinator_->receive(id, message, monotonic_ns());
  }
  set_timer();
}

// It closes when it has read what was sent; if not, so do we.
void Agent::drop(int64_t id) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  peer->second.dropped = true;
  loop_.after(kFarewellS, [this, id] { peers_.erase(id); });
}

Endpoint Agent::open_store(int64_t world_size) {
  store_.reset();
  const std::string host = endpoint_.host.empty() ? "127.0.0.1" : endpoint_.host;
  store_ = std::make_unique<StoreProcess>(loop_, reaper_, signals_.old(), host, world_size > 1,
                                          [this](const std::string& why) {
                                            Failure failure;
                                            failure.host = host_;
                                            failure.time_ns = monotonic_ns();
                                            failure.code = static_cast<int>(ExitCode::kDistributed);
                                            failure.message = why;
                                            const auto& last = node_.last();
                                            to_coordinator(Exited{last ? last->attempt : 0, failure});
                                          });
  return store_->endpoint();
}

// --- between this node and the coordinator ---

void Agent::to_coordinator(const Message& message) {
  if (link_ != nullptr) {
    link_->send(message);
  } else if (coordinator_ != nullptr) {
    loop_.defer([this, message] {
      coordinator_->receive(0, message, monotonic_ns());
      set_timer();
    });
  }
}

void Agent::from_coordinator(const Message& message) {
  if (const auto* refused = std::get_if<Refused>(&message)) {
    if (refused->final) {
      finish({static_cast<int>(ExitCode::kDistributed),
              "FAILED  this node is not taken in: " + refused->reason, ""});
    } else {
      print(refused->reason + "; trying again");
      loop_.after(1, [this] { on_lost("refused"); });
    }
  } else if (const auto* ask = std::get_if<Probe>(&message)) {
    probe(*ask);
  } else if (std::holds_alternative<AskAlive>(message)) {
    to_coordinator(Alive{});
  } else if (std::holds_alternative<Accepted>(message)) {
    if (link_ != nullptr)
      print(fmt::format("joined the job at {}", net::host_port(endpoint_.host, endpoint_.port)));
  } else {
    node_.receive(message);
  }
}

void Agent::set_timer() {
  loop_.cancel(timer_);
  look_around();
  if (coordinator_ == nullptr || coordinator_->deadline_ns() == kNever) return;
  timer_ = loop_.at(coordinator_->deadline_ns(), [this] {
    coordinator_->on_time(monotonic_ns());
    set_timer();
  });
}

void Agent::on_lost(const std::string& reason) {
  if (finish_ || link_ == nullptr) return;
  why_lost_ = fmt::format("the coordinator at {} is lost: {}", net::host_port(endpoint_.host, endpoint_.port),
                          reason);
  link_.reset();
  if (reason != "refused") print(why_lost_ + (node_.has_workers() ? "; stopping the workers here" : ""));
  node_.lose_coordinator();
}

// The coordinator was lost, and the workers are gone.
void Agent::on_idle() {
  if (num_signals_ > 0) return finish({stop_code(last_signal_, false), "", ""});
  if (plan_.is_fixed() && plan_.max_restarts == 0 && node_.last()) {
    finish({static_cast<int>(ExitCode::kDistributed),
            fmt::format("FAILED  node 0, lost\n  {}\n  hint: it is down, its agent was killed, or the "
                        "network between the "
                        "nodes is; with --rdzv-endpoint and a second endpoint another node takes over",
                        why_lost_),
            ""});
    return;
  }
  if (!why_lost_.empty())
    print(
        fmt::format("looking for the job again, at most {} s (launch.join_timeout_s)", plan_.join_timeout_s));
  meet(static_cast<int>(index_of(endpoint_)));
}

void Agent::on_signal() {
  signalfd_siginfo info{};
  while (::read(signal_fd_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    const auto& stop = plan_.stop_signals;
    if (std::find(stop.begin(), stop.end(), signal) == stop.end()) {  // SIGUSR1
      to_coordinator(AskSave{});
    } else {
      leave(fmt::format("SIG{}", ::sigabbrev_np(signal)), signal);
    }
  }
}

void Agent::leave(const std::string& what, int signal) {
  if (finish_) return;
  last_signal_ = signal;
  const bool again = num_signals_++ > 0 && (signal == SIGINT || signal == SIGQUIT);
  if (again) node_.kill();
  if (link_ == nullptr && coordinator_ == nullptr) {
    if (!node_.has_workers()) finish({stop_code(signal, false), what + ": no worker was running", ""});
    return;
  }
  to_coordinator(Leave{what, signal, again});
}

void Agent::finish(const Finish& finish) {
  if (finish_) return;
  finish_ = finish;
  if (!finish.error_file.empty()) {
    try {
      if (coordinator_ != nullptr) write_file_atomic(plan_.log_dir / "error.json", finish.error_file);
      if (const char* path = std::getenv("TORCHELASTIC_ERROR_FILE"))
        write_file_atomic(path, finish.error_file);
    } catch (const Error& error) {
      print(fmt::format("warning: {}", error.what()));
    }
  }
  if (!finish.text.empty()) print(finish.text);  // last
}

}  // namespace

AgentResult run_agent(const WorkerPlan& plan) {
  for (int fd = 0; fd <= 2; ++fd) {  // a pipe must not take the number of a closed standard stream
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
  Agent agent(plan);
  return agent.run();
}

}  // namespace trainer::launch
