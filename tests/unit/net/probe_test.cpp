#include "net/probe.h"

#include <map>

#include "fixture.h"

using namespace net_test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::vector<Descriptor> one_socket() {
  std::vector<Descriptor> sockets;
  sockets.push_back(listen_on(0, true));
  return sockets;
}

std::vector<ProbeResult> results_of(EventLoop& loop, std::vector<ProbePeer> peers, double limit_s) {
  std::vector<ProbeResult> results;
  bool is_done = false;
  const auto running =
      probe(loop, std::move(peers), {"job", "secret"}, in_s(limit_s), [&](std::vector<ProbeResult> r) {
        results = std::move(r);
        is_done = true;
      });
  REQUIRE(run_until(loop, [&] { return is_done; }));
  return results;
}

}  // namespace

TEST_CASE("each node that answers is reached, in the order asked, more than are tried at once") {
  EventLoop loop;
  std::vector<std::unique_ptr<Listener>> nodes;
  std::vector<ProbePeer> peers;
  for (int i = 0; i < 150; ++i) {
    nodes.push_back(answer_probes(loop, one_socket(), {"job", "secret"}));
    peers.push_back({"node " + std::to_string(i), "127.0.0.1", nodes.back()->port()});
  }
  const std::vector<ProbeResult> results = results_of(loop, peers, 60);
  REQUIRE(results.size() == 150);
  for (size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i].peer.name == peers[i].name);
    CHECK(results[i].is_reached);
    CHECK(results[i].ms > 0);
    CHECK((results[i].reason.empty() && results[i].hint.empty()));
  }
}

TEST_CASE("a node that is not reached is told with the reason and how to mend it") {
  EventLoop loop;
  const CapturedErrors errors;
  const auto other_job = answer_probes(loop, one_socket(), {"other", "secret"});
  Descriptor closed = listen_on(0, true);
  const int64_t free_port = port_of(closed);
  closed.reset();
  const Descriptor silent = listen_on("127.0.0.1", 0, "port");
  const std::vector<ProbeResult> results = results_of(loop,
                                                      {{"node 0", "127.0.0.1", other_job->port()},
                                                       {"node 1", "127.0.0.1", free_port},
                                                       {"node 2", "127.0.0.1", port_of(silent)},
                                                       {"node 3", "not an address", 1},
                                                       {"node 4", "255.255.255.255", 1}},
                                                      1);
  REQUIRE(results.size() == 5);
  for (const ProbeResult& r : results) CHECK(!r.is_reached);
  CHECK_THAT(results[0].reason, Contains(" runs another job (id \"other\", ours is \"job\")"));
  CHECK(results[0].hint ==
        "node 0 tells others a loopback address; set launch.local_addr or launch.interface there");
  CHECK(results[1].reason == "127.0.0.1:" + std::to_string(free_port) + ": connection refused");
  CHECK_THAT(results[2].reason, Contains(": no handshake in "));
  CHECK_THAT(results[3].reason, StartsWith("not an address: name does not resolve ("));
  CHECK(results[3].hint ==
        "all nodes must know this name (DNS, /etc/hosts); or set launch.local_addr to the node's "
        "address");
  CHECK_THAT(results[4].reason, StartsWith("255.255.255.255:1: no route to host"));
  CHECK_THAT(results[4].hint, StartsWith("the nodes are on different networks"));
}

TEST_CASE("those that do not answer leave time for the last ones") {
  EventLoop loop;
  const Descriptor silent = listen_on(0, true);
  const auto node = answer_probes(loop, one_socket(), {"job", "secret"});
  std::vector<ProbePeer> peers(130, ProbePeer{"silent", "127.0.0.1", port_of(silent)});
  peers.push_back({"node", "127.0.0.1", node->port()});
  const std::vector<ProbeResult> results = results_of(loop, peers, 1.5);
  CHECK(!results.front().is_reached);
  CHECK(results.back().is_reached);
}

TEST_CASE("probing nobody is done, and a probe may be destroyed at any time") {
  EventLoop loop;
  CHECK(results_of(loop, {}, 1).empty());
  const Descriptor silent = listen_on(0, true);
  const size_t before = num_descriptors();
  auto running = probe(loop, {{"silent", "127.0.0.1", port_of(silent)}}, {"job", ""}, in_s(60),
                       [](std::vector<ProbeResult>) { FAIL("it was destroyed"); });
  run_for(loop, 0.05);
  running.reset();
  CHECK(num_descriptors() == before);
}
