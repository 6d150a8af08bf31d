#include "launch/coordinator/coordinator.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <limits>
#include <map>

#include "core/error.h"

using namespace trainer::launch;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A coordinator with what it told each member, and a clock of its own.
struct Job {
  explicit Job(WorkerPlan p) : plan(std::move(p)) {
    plan.preflight = false;
    make();
  }
  void make() {
    coordinator.emplace(plan,
                        Coordinator::Hooks{[this](int64_t id, const Message& m) { told[id].push_back(m); },
                                           [this](int64_t id) { dropped.push_back(id); },
                                           [this](int64_t) {
                                             return Endpoint{"head", 1000 + ++stores};
                                           }},
                        now);
  }

  void join(int64_t id, int64_t node_rank = -1, int64_t nproc = 2) {
    Join j;
    j.host = "h" + std::to_string(id);
    j.node_rank = node_rank;
    j.nproc = nproc;
    coordinator->join(id, j, now);
  }
  void receive(int64_t id, const Message& message) { coordinator->receive(id, message, now); }
  void fail(int64_t id, int64_t rank, int code, int64_t time_ns, bool after_stop = false) {
    Failure f;
    f.node_rank = id;
    f.rank = rank;
    f.code = code;
    f.time_ns = time_ns;
    f.after_stop = after_stop;
    receive(id, Exited{attempt(), f});
  }
  void end(int64_t id, int64_t num_preempted = 0, int64_t last_step = -1) {
    receive(id, Ended{attempt(), num_preempted, last_step});
  }
  // To the coordinator's next deadline, at most `seconds` on.
  void pass(double seconds) {
    const int64_t end = now + static_cast<int64_t>(seconds * 1e9);
    while (coordinator->deadline_ns() <= end) {
      now = std::max(now, coordinator->deadline_ns());
      coordinator->on_time(now);
    }
    now = end;
  }

  template <class M>
  const M* last(int64_t id) const {
    const auto found = told.find(id);
    if (found == told.end()) return nullptr;
    for (auto message = found->second.rbegin(); message != found->second.rend(); ++message) {
      if (const M* m = std::get_if<M>(&*message)) return m;
    }
    return nullptr;
  }
  template <class M>
  int64_t count(int64_t id) const {
    int64_t n = 0;
    if (const auto found = told.find(id); found != told.end()) {
      for (const Message& m : found->second) n += std::holds_alternative<M>(m) ? 1 : 0;
    }
    return n;
  }
  int64_t attempt() const { return last<Start>(0)->assignment.attempt; }
  std::string notes(int64_t id) const {
    std::string text;
    for (const Message& m : told.at(id)) {
      if (const Note* note = std::get_if<Note>(&m)) text += note->text + "\n";
    }
    return text;
  }

  WorkerPlan plan;
  int64_t now = 100 * kSecond;
  int64_t stores = 0;
  std::map<int64_t, std::vector<Message>> told;
  std::vector<int64_t> dropped;
  std::optional<Coordinator> coordinator;
};

WorkerPlan fixed(int64_t nodes) {
  WorkerPlan plan;
  plan.min_nodes = plan.max_nodes = nodes;
  return plan;
}

WorkerPlan elastic(int64_t min_nodes, int64_t max_nodes) {
  WorkerPlan plan;
  plan.min_nodes = min_nodes;
  plan.max_nodes = max_nodes;
  plan.node_rank = -1;
  return plan;
}

}  // namespace

TEST_CASE("one node starts at once") {
  Job job(fixed(1));
  job.join(0, 0);
  REQUIRE(job.count<Start>(0) == 1);
  CHECK(job.last<Start>(0)->assignment.world_size == 2);
  CHECK(job.coordinator->deadline_ns() == kNever);
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 0);
}

TEST_CASE("a fixed number of nodes starts when all are here, in the order of their ranks") {
  Job job(fixed(3));
  job.join(0, 0, 1);
  job.join(1, 2, 4);
  CHECK(job.count<Start>(0) == 0);
  job.join(2, 1, 2);
  CHECK(job.last<Start>(0)->assignment.first_rank == 0);
  CHECK(job.last<Start>(2)->assignment.first_rank == 1);
  CHECK(job.last<Start>(1)->assignment.first_rank == 3);
  for (const int64_t id : {0, 1, 2}) {
    const Assignment& assignment = job.last<Start>(id)->assignment;
    CHECK(assignment.world_size == 7);
    CHECK(assignment.num_nodes == 3);
    CHECK(assignment.master_addr == "head");
    CHECK(assignment.master_port == 1001);
  }
}

TEST_CASE("nodes that do not come are named when the time is over") {
  Job job(fixed(4));
  job.join(0, 0);
  job.join(1, 2);
  job.pass(599);
  CHECK(job.count<Finish>(0) == 0);
  job.pass(2);
  const Finish* finish = job.last<Finish>(1);
  REQUIRE(finish != nullptr);
  CHECK(finish->code == 4);
  CHECK_THAT(finish->text,
             StartsWith("FAILED  2 of 4 nodes came within 600 s (launch.join_timeout_s); missing: node "
                        "rank 1, 3\n  here: h0, h1\n  hint: "));
}

TEST_CASE("who does not fit is refused, and told why") {
  Job job(fixed(2));
  job.join(0, 0);
  job.join(1, 5);
  CHECK(job.last<Refused>(1)->reason == "h1 is node 5; expected --node-rank 0 to 1");
  job.join(2, 0);
  CHECK(job.last<Refused>(2)->reason == "node rank 0 is taken by h0 (pid 0); this one is h2 (pid 0)");
  CHECK(job.last<Refused>(2)->final);
  Join other;
  other.host = "x";
  other.node_rank = 1;
  other.version = "9";
  job.coordinator->join(3, other, job.now);
  CHECK_THAT(job.last<Refused>(3)->reason, Contains("x runs trainer 9"));
  other.version.clear();
  other.spec_hash = "abc";
  job.coordinator->join(4, other, job.now);
  CHECK_THAT(job.last<Refused>(4)->reason,
             Contains("x has another job than h0: got abc; expected ; its job file, --set or flags differ"));
  CHECK(job.dropped == std::vector<int64_t>{1, 2, 3, 4});
  // The node that waits knows, too.
  CHECK_THAT(job.notes(0), Contains("refused: h1 is node 5") && Contains("refused: x has another job"));
  job.pass(601);
  CHECK_THAT(job.last<Finish>(0)->text,
             Contains("\n  refused: x has another job than h0") && !Contains("firewall"));
}

TEST_CASE(
    "a second node of one rank is refused when the first is alive, and takes its place when it is lost") {
  Job job(fixed(3));
  job.join(0, 0);
  job.join(1, 1);
  job.join(2, 1);
  job.join(3, 1);
  CHECK(job.count<AskAlive>(1) == 2);
  CHECK(job.count<Refused>(2) + job.count<Accepted>(2) == 0);
  SECTION("alive") {
    job.receive(1, Alive{});
    CHECK(job.last<Refused>(2)->reason == "node rank 1 is taken by h1 (pid 0); this one is h2 (pid 0)");
    CHECK(job.last<Refused>(2)->final);
    CHECK(job.dropped == std::vector<int64_t>{2, 3});
  }
  SECTION("lost") {
    job.coordinator->lose(3, "closed", job.now);  // nor is it waited for any more
    job.coordinator->lose(1, "nothing heard from it", job.now);
    CHECK(job.count<Accepted>(2) == 1);
    job.join(4, 2);
    CHECK(job.last<Start>(2)->assignment.node_rank == 1);
  }
  SECTION("neither, when the job ends") {
    job.pass(601);
    CHECK(job.last<Refused>(2)->reason == "the job is over");
  }
}

TEST_CASE("the first failure in time is named on all nodes, whichever is heard of first") {
  Job job(fixed(2));
  job.join(0, 0);
  job.join(1, 1);
  job.fail(0, 0, 9, 2000);
  CHECK(job.count<Stop>(0) == 1);
  CHECK(job.count<Stop>(1) == 1);
  job.fail(1, 3, 7, 1000);  // was on its way
  job.end(0);
  CHECK(job.count<Finish>(0) == 0);
  job.end(1);
  for (const int64_t id : {0, 1}) {
    CHECK(job.last<Finish>(id)->code == 7);
    CHECK_THAT(job.last<Finish>(id)->text, StartsWith("FAILED  node 1 rank 3 ("));
    CHECK_THAT(job.last<Finish>(id)->error_file, Contains("\"errorCode\":7"));
  }
}

TEST_CASE("a rank that lost its peers gives the cause half a second to show") {
  Job job(fixed(1));
  job.join(0, 0, 3);
  job.fail(0, 0, 4, job.now);
  CHECK(job.count<Stop>(0) == 0);
  job.pass(0.2);
  job.fail(0, 1, 3, job.now);
  CHECK(job.count<Stop>(0) == 1);
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 3);

  Job alone(fixed(1));
  alone.join(0, 0, 3);
  alone.fail(0, 0, 4, alone.now);
  alone.pass(0.6);
  CHECK(alone.count<Stop>(0) == 1);
  alone.end(0);
  CHECK(alone.last<Finish>(0)->code == 4);
}

TEST_CASE("a node that is lost ends a job of fixed size, and is named before those who failed over it") {
  Job job(fixed(3));
  for (const int64_t id : {0, 1, 2}) job.join(id, id);
  Failure consequence;
  consequence.node_rank = 2;
  consequence.rank = 4;
  consequence.code = 1;
  consequence.time_ns = job.now;
  consequence.tail = {"RuntimeError: Connection closed by peer [10.0.0.2]:1"};
  job.receive(2, Exited{0, consequence});
  job.pass(3);
  job.coordinator->lose(1, "nothing heard from it for 4.0 s", job.now);
  job.end(0);
  job.end(2);
  CHECK(job.last<Finish>(0)->code == 4);
  CHECK_THAT(job.last<Finish>(2)->text,
             StartsWith("FAILED  node 1 (host h1), lost") && Contains("nothing heard from it for 4.0 s"));
}

TEST_CASE("a node that is lost after a failure is not its cause") {
  Job job(fixed(3));
  for (const int64_t id : {0, 1, 2}) job.join(id, id);
  job.fail(2, 4, 7, job.now);
  job.coordinator->lose(1, "closed by the peer", job.now);
  job.end(0);
  job.end(2);
  CHECK(job.last<Finish>(0)->code == 7);
}

TEST_CASE("of two coordinators the one goes on that runs or is further") {
  Job job(elastic(2, 3));
  job.join(0);
  Join other;
  CHECK(job.coordinator->is_gathering());
  CHECK(job.coordinator->is_further_than(other, true));
  CHECK_FALSE(job.coordinator->is_further_than(other, false));
  other.last_attempt = 0;
  CHECK_FALSE(job.coordinator->is_further_than(other, true));
  job.join(1);
  job.pass(6);
  CHECK_FALSE(job.coordinator->is_gathering());
  CHECK(job.coordinator->is_further_than(other, false));
}

TEST_CASE("a failed attempt is followed by another while the budget of the whole job lasts") {
  WorkerPlan plan = fixed(2);
  plan.max_restarts = 2;
  Job job(plan);
  job.join(0, 0);
  job.join(1, 1);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(job.attempt() == i);
    CHECK(job.last<Start>(1)->assignment.restarts == i);
    CHECK(job.last<Start>(1)->assignment.master_port == 1001 + i);  // a store of its own
    job.fail(i % 2, 2 * (i % 2), 7, job.now);                       // now one node's worker, now the other's
    job.end(0);
    job.end(1);
  }
  CHECK(job.count<Start>(0) == 3);
  CHECK(job.last<Finish>(0)->code == 7);
  CHECK_THAT(job.last<Finish>(0)->text, Contains("no restart: all 2 of launch.max_restarts are used"));
  CHECK_THAT(job.notes(1), Contains("restart 1 of 2") && Contains("restart 2 of 2"));
}

TEST_CASE("what a restart does not mend is not tried again") {
  WorkerPlan plan = fixed(1);
  plan.max_restarts = 2;
  Job job(plan);
  job.join(0, 0);
  job.fail(0, 0, 3, job.now);
  job.end(0);
  CHECK_THAT(job.last<Finish>(0)->text,
             Contains("no restart: another try does not mend what exit code 3 stands for"));
  plan.is_trainer = false;  // another program's 3 may mean anything
  Job other(plan);
  other.join(0, 0);
  other.fail(0, 0, 3, other.now);
  other.end(0);
  CHECK(other.attempt() == 1);
}

TEST_CASE("restarts that come no further end") {
  WorkerPlan plan = fixed(1);
  plan.max_restarts = 100;
  plan.max_restarts_without_progress = 2;
  Job job(plan);
  job.join(0, 0);
  for (const int64_t step : {10, 30, 30, 20}) {
    REQUIRE(job.count<Finish>(0) == 0);
    job.fail(0, 0, 1, job.now);
    job.end(0, 0, step);
  }
  REQUIRE(job.count<Finish>(0) == 1);
  CHECK_THAT(job.last<Finish>(0)->text,
             Contains("no restart: 2 restarts in a row came no further than step 30"));
}

TEST_CASE("an elastic job waits for more nodes for a last call, then takes in who comes later") {
  Job job(elastic(1, 3));
  job.join(0);
  CHECK(job.count<Start>(0) == 0);
  job.join(1);
  job.pass(4.9);
  CHECK(job.count<Start>(0) == 0);
  job.pass(0.2);
  CHECK(job.last<Start>(1)->assignment.num_nodes == 2);

  job.join(2);
  CHECK(job.count<Raise>(0) == 1);  // save and stop
  CHECK(job.last<Raise>(1)->stop);
  job.receive(0, Raised{0, job.last<Raise>(0)->id});
  CHECK(job.count<Go>(0) == 0);
  job.receive(1, Raised{0, job.last<Raise>(1)->id});
  CHECK(job.count<Go>(0) == 1);
  CHECK(job.count<Go>(1) == 1);
  job.end(0, 2);
  job.end(1, 2);
  CHECK(job.attempt() == 1);  // the third was the last
  CHECK(job.last<Start>(2)->assignment.node_rank == 2);
  CHECK(job.last<Start>(0)->assignment.restarts == 0);  // nothing has failed

  job.join(3);
  CHECK_THAT(job.notes(3), Contains("waiting as a spare"));
  CHECK(job.count<Start>(3) == 0);
  job.coordinator->lose(1, "closed", job.now);
  job.end(0);
  job.end(2);
  CHECK(job.attempt() == 2);
  CHECK(job.last<Start>(2)->assignment.node_rank == 1);  // those who stay keep their order
  CHECK(job.last<Start>(3)->assignment.node_rank == 2);
}

TEST_CASE("an elastic job goes on without a node that leaves, down to its minimum") {
  Job job(elastic(2, 3));
  for (const int64_t id : {0, 1, 2}) job.join(id);
  job.receive(1, Leave{"SIGTERM", SIGTERM, false});
  CHECK(job.last<Raise>(0)->signal == SIGTERM);
  for (const int64_t id : {0, 1, 2}) job.end(id, 2);
  CHECK(job.last<Finish>(1)->code == 75);  // it has saved
  job.pass(6);
  CHECK(job.attempt() == 1);
  CHECK(job.last<Start>(2)->assignment.num_nodes == 2);
  job.coordinator->lose(2, "closed", job.now);
  job.end(0);
  job.pass(599);
  CHECK(job.count<Finish>(0) == 0);
  job.pass(2);
  CHECK_THAT(job.last<Finish>(0)->text,
             StartsWith("FAILED  node 1 (host h2), lost\n  the connection to its agent") &&
                 Contains("\n  1 of at least 2 nodes are left: only 1 of 2 nodes were here within 600 s "
                          "(launch.join_timeout_s)\n  here: h0"));
  CHECK_THAT(job.last<Finish>(0)->error_file, Contains("\"errorCode\":4"));
  // What it waits for is said at once, and once a minute.
  CHECK_THAT(
      job.notes(0),
      Contains("node 1 (host h2), lost; 1 of at least 2 nodes are left\n"
               "1 of 2 nodes are here; waiting for 1 more, at most 600 s more (launch.join_timeout_s)\n"
               "1 of 2 nodes are here; waiting for 1 more, at most 540 s more"));
}

TEST_CASE("a node of a fixed job that is lost and does not come back is the job's failure") {
  WorkerPlan plan = fixed(2);
  plan.max_restarts = 1;
  plan.join_timeout_s = 3;
  Job job(plan);
  job.join(0, 0);
  job.join(1, 1);
  job.coordinator->lose(1, "closed by the peer", job.now);
  job.end(0);
  CHECK_THAT(job.notes(0),
             Contains("restart 1 of 1\n1 of 2 nodes are here; waiting for node rank 1, at most 3 s"));
  job.pass(4);
  const Finish* finish = job.last<Finish>(0);
  REQUIRE(finish != nullptr);
  CHECK(finish->code == 4);
  CHECK_THAT(
      finish->text,
      StartsWith("FAILED  node 1 (host h1), lost\n") &&
          Contains("\n  restart 1 of 1: node rank 1 did not come back within 3 s (launch.join_timeout_s)"));
  CHECK_THAT(finish->error_file, Contains("did not come back") && Contains("\"node\":1"));
}

TEST_CASE("a stop ends a failed attempt that a restart would have followed, with the stop's code") {
  for (const auto& [leave, code] :
       {std::pair(Leave{"SIGTERM", SIGTERM, false}, 143), std::pair(Leave{"SIGINT", SIGINT, true}, 130),
        std::pair(Leave{"launch.preempt_file /spot", 0, false}, 75)}) {
    WorkerPlan plan = fixed(1);
    plan.max_restarts = 5;
    Job job(plan);
    job.join(0, 0);
    job.fail(0, 1, 7, job.now);
    REQUIRE(job.count<Stop>(0) == 1);
    job.receive(0, leave);
    job.fail(0, 0, 3, job.now, true);
    job.end(0);
    CHECK(job.last<Finish>(0)->code == code);
    CHECK_THAT(job.last<Finish>(0)->text, StartsWith("FAILED  node 0 rank 1 (") && Contains("exit code 7") &&
                                              !Contains("before the others") &&
                                              EndsWith("\n  not restarted: " + leave.what));
    CHECK(job.last<Finish>(0)->error_file.empty());
  }
  // With no restart to come the failure is what ended the job.
  Job job(fixed(1));
  job.join(0, 0);
  job.fail(0, 1, 7, job.now);
  job.receive(0, Leave{"SIGTERM", SIGTERM, false});
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 7);
}

TEST_CASE("the coordinator's node leaves a job that can meet elsewhere, and ends one that can not") {
  WorkerPlan plan = elastic(1, 3);
  plan.endpoints = {{"h0", 1}, {"h1", 1}};
  Job job(plan);
  for (const int64_t id : {0, 1, 2}) job.join(id);
  job.receive(0, Leave{"SIGTERM", SIGTERM, false});
  for (const int64_t id : {0, 1, 2}) job.end(id, 2);
  CHECK(job.last<Finish>(0)->code == 75);
  for (const int64_t id : {1, 2}) {
    CHECK(job.count<Finish>(id) == 0);
    CHECK(job.last<Refused>(id)->reason == "h0, where the nodes meet, leaves the job");
    CHECK_FALSE(job.last<Refused>(id)->final);  // they meet again
  }
  // One of them comes back here first, before this node is gone.
  job.join(3);
  CHECK(job.last<Refused>(3)->reason == "this node leaves the job");
  CHECK_FALSE(job.last<Refused>(3)->final);

  plan.endpoints.pop_back();
  Job bound(plan);
  for (const int64_t id : {0, 1, 2}) bound.join(id);
  bound.receive(0, Leave{"SIGTERM", SIGTERM, false});
  for (const int64_t id : {0, 1, 2}) bound.end(id, 2);
  CHECK(bound.last<Finish>(1)->code == 75);
}

TEST_CASE("a notice ends a job as preempted also when nothing was there to save") {
  Job job(fixed(1));
  job.join(0, 0);
  job.receive(0, Leave{"launch.preempt_file /spot", 0, false});
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 75);
}

TEST_CASE("a coordinator that takes over goes on counting where the lost one was") {
  WorkerPlan plan = elastic(1, 2);
  plan.max_restarts = 4;
  Job job(plan);
  Join join;
  join.host = "h0";
  join.previous_rank = 1;
  join.last_attempt = 6;
  join.restarts = 4;
  job.coordinator->join(0, join, job.now);
  job.pass(6);
  CHECK(job.attempt() == 7);
  job.fail(0, 0, 1, job.now);
  job.end(0);
  CHECK_THAT(job.last<Finish>(0)->text, Contains("all 4 of launch.max_restarts are used"));
}

TEST_CASE("a job that is told to stop ends as preempted when its workers have saved") {
  Job job(fixed(2));
  job.join(0, 0);
  job.join(1, 1);
  job.receive(1, Leave{"SIGTERM", SIGTERM, false});
  CHECK_THAT(job.notes(0), Contains("node 1 (h1): SIGTERM: stopping 4 workers"));
  for (const int64_t id : {0, 1}) job.receive(id, Raised{0, job.last<Raise>(id)->id});
  CHECK(job.count<Go>(1) == 1);
  job.end(0, 2);
  job.end(1, 2);
  CHECK(job.last<Finish>(0)->code == 75);
  CHECK(job.last<Finish>(1)->code == 75);
}

TEST_CASE("a job that is told to stop gives the signal when nothing was saved, and a failure before that") {
  Job job(fixed(1));
  job.join(0, 0);
  job.receive(0, Leave{"SIGINT", SIGINT, false});
  job.fail(0, 0, 1, job.now, true);
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 128 + SIGINT);
  CHECK(job.last<Finish>(0)->text.empty());

  Job failing(fixed(1));
  failing.join(0, 0);
  failing.receive(0, Leave{"SIGTERM", SIGTERM, false});
  failing.fail(0, 0, 5, failing.now);  // while saving
  failing.end(0, 1);
  CHECK(failing.last<Finish>(0)->code == 5);

  Job killed(fixed(1));
  killed.join(0, 0);
  killed.receive(0, Leave{"SIGINT", SIGINT, false});
  killed.receive(0, Leave{"SIGINT", SIGINT, true});
  CHECK(killed.last<Stop>(0)->at_once);
}

TEST_CASE("SIGUSR1 asks all workers to save and go on") {
  Job job(fixed(1));
  job.join(0, 0);
  job.receive(0, AskSave{});
  REQUIRE(job.count<Raise>(0) == 1);
  CHECK_FALSE(job.last<Raise>(0)->stop);
  job.receive(0, Raised{0, 1});
  CHECK(job.last<Go>(0)->id == 1);
  job.end(0);
  CHECK(job.last<Finish>(0)->code == 0);
}

TEST_CASE("a rank that stands still is named with its peers' phases, its stacks and the attempt's end") {
  using trainer::report::Phase;
  Job job(fixed(2));
  job.join(0, 0);
  job.join(1, 1);
  job.receive(0, Stalled{0, 0, 60});  // a victim notices first
  CHECK(job.count<AskStatus>(1) == 1);
  const auto status = [](int64_t rank, int64_t step, Phase phase) {
    return RankStatus{rank, 100 + rank, true, step, static_cast<uint32_t>(phase), 61, 0};
  };
  job.receive(0, Status{0, -1, {status(0, 12, Phase::kSync), status(1, 12, Phase::kSync)}});
  job.receive(1, Status{0, -1, {status(2, 12, Phase::kForward), status(3, 12, Phase::kSync)}});
  REQUIRE(job.count<AskStacks>(1) == 1);
  CHECK(job.count<AskStacks>(0) == 0);
  CHECK(job.last<AskStacks>(1)->rank == 2);
  job.receive(1, Stacks{0, 2, "thread 1: nanosleep", "logs/2/stderr.log"});
  CHECK_THAT(job.notes(0), Contains("stacks of rank 2:\nthread 1: nanosleep"));
  CHECK(job.last<Stop>(1)->kill == std::vector<int64_t>{2});
  job.end(0);
  job.end(1);
  CHECK(job.last<Finish>(0)->code == 4);
  CHECK_THAT(job.last<Finish>(0)->text, StartsWith("FAILED  node 1 rank 2 (host h1, pid 102) at step 12") &&
                                            Contains("hang: no progress for ") &&
                                            Contains("ranks 0, 1, 3: step 12, waiting for the other ranks") &&
                                            Contains("rank 2: step 12, forward") &&
                                            Contains("\n  log: logs/2/stderr.log"));
}

TEST_CASE("a rank that a signal has stopped is to blame, though it was stopped while it waited") {
  using trainer::report::Phase;
  Job job(fixed(1));
  job.join(0, 0);
  job.receive(0, Stalled{0, 0, 60});
  const auto waiting = static_cast<uint32_t>(Phase::kSync);
  job.receive(0, Status{0,
                        -1,
                        {RankStatus{0, 100, true, 9, waiting, 61, 0, 'S'},
                         RankStatus{1, 101, true, 9, waiting, 61, 0, 'T'}}});
  CHECK(job.last<AskStacks>(0)->rank == 1);
  job.receive(0, Stacks{0, 1, "x", ""});
  job.end(0);
  CHECK_THAT(job.last<Finish>(0)->text, Contains("rank 1: step 9, ") && Contains(", stopped by a signal"));
}

TEST_CASE("a hang on a node that does not answer is reported without its stacks") {
  using trainer::report::Phase;
  Job job(fixed(1));
  job.join(0, 0);
  job.receive(0, Stalled{0, 1, 60});
  job.receive(0, Status{0, -1, {RankStatus{1, 7, true, 3, static_cast<uint32_t>(Phase::kBackward), 61, 0}}});
  job.pass(14);
  CHECK(job.count<Stop>(0) == 0);
  job.pass(2);
  CHECK(job.count<Stop>(0) == 1);
}

TEST_CASE("a node that does not end its workers is given up") {
  Job job(fixed(2));
  job.join(0, 0);
  job.join(1, 1);
  job.fail(0, 0, 7, job.now);
  job.end(0);
  job.pass(24);
  CHECK(job.count<Finish>(0) == 0);
  job.pass(2);
  CHECK(job.last<Finish>(0)->code == 7);
}

TEST_CASE("nodes that do not reach each other are told before any worker starts") {
  Job job(fixed(2));
  job.plan.preflight = true;
  job.make();
  job.join(0, 0);
  job.join(1, 1);
  REQUIRE(job.count<Probe>(0) == 1);
  CHECK(job.last<Probe>(0)->hosts == std::vector<std::string>{"h1"});
  job.receive(0, Probed{});
  CHECK(job.count<Start>(0) == 0);
  SECTION("all do") {
    job.receive(1, Probed{});
    CHECK(job.count<Start>(0) == 1);
  }
  SECTION("one does not") {
    job.receive(1, Probed{{"h0: timed out"}});
    CHECK(job.last<Finish>(0)->code == 4);
    CHECK_THAT(job.last<Finish>(0)->text, Contains("h1 does not reach its peers\n  h0: timed out"));
  }
  SECTION("one does not answer") {
    job.pass(16);
    CHECK_THAT(job.last<Finish>(0)->text, Contains("h1 does not reach its peers\n  it did not answer"));
  }
}
