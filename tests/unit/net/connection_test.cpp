#include "net/connection.h"

#include "core/error.h"
#include "fixture.h"

using namespace net_test;
using Catch::Matchers::Message;
using Catch::Matchers::StartsWith;

TEST_CASE("messages of any size arrive whole, in order, both ways") {
  EventLoop loop;
  Pair pair(loop);
  Inbox near, far;
  near.attach(pair.near());
  far.attach(pair.far());
  std::string big(kMaxMessageBytes, 'x');
  for (size_t i = 0; i < big.size(); i += 4096) big[i] = static_cast<char>(i >> 12);
  for (Connection* from : {&pair.near(), &pair.far()}) {
    from->send("");
    from->send("1");
    from->send(big);
    for (int i = 0; i < 5000; ++i) from->send(std::to_string(i));
  }
  REQUIRE(run_until(loop, [&] { return near.messages.size() == 5003 && far.messages.size() == 5003; }));
  for (const Inbox* in : {&near, &far}) {
    CHECK(in->messages[0].empty());
    CHECK(in->messages[1] == "1");
    CHECK(in->messages[2] == big);
    for (size_t i = 0; i < 5000; ++i) REQUIRE(in->messages[3 + i] == std::to_string(i));
  }
  CHECK(pair.near().all_sent());
  CHECK(pair.far().all_sent());
}

TEST_CASE("nothing is delivered before start, and nothing that came before is lost") {
  EventLoop loop;
  Pair pair(loop);
  for (int i = 0; i < 100; ++i) pair.near().send(std::to_string(i));
  run_for(loop, 0.02);
  pair.client.connection.reset();
  run_for(loop, 0.02);
  Inbox far;
  far.attach(pair.far());
  CHECK(far.messages.empty());
  REQUIRE(run_until(loop, [&] { return far.num_lost > 0; }));
  CHECK(far.messages.size() == 100);
  CHECK(far.messages.back() == "99");
  CHECK(far.lost == "closed by the peer");
  run_for(loop, 0.02);
  CHECK(far.num_lost == 1);
}

TEST_CASE("addresses are told as one writes them") {
  EventLoop loop;
  Pair pair(loop);
  CHECK(pair.near().peer_address() == "127.0.0.1:" + std::to_string(pair.server.port()));
  CHECK(pair.near().local_address() == "127.0.0.1");
  CHECK_THAT(pair.far().peer_address(), StartsWith("127.0.0.1:"));
}

TEST_CASE("a peer that sends and closes at once is heard to the end") {
  EventLoop loop;
  Pair pair(loop);
  Inbox far;
  far.attach(pair.far());
  pair.far().send("unread by the one that closes");
  pair.near().send(std::string(100'000, 'a'));
  pair.near().send("last words");
  REQUIRE(run_until(loop, [&] { return pair.near().all_sent(); }));
  pair.client.connection.reset();
  REQUIRE(run_until(loop, [&] { return far.num_lost > 0; }));
  REQUIRE(far.messages.size() == 2);
  CHECK(far.messages.back() == "last words");
  CHECK(far.lost == "closed by the peer");
}

TEST_CASE("sending to one that has gone tells the loss once, from the loop, after what it had sent") {
  EventLoop loop;
  Pair pair(loop);
  Inbox far;
  far.attach(pair.far());
  pair.near().send("a");
  pair.client.connection.reset();
  for (int i = 0; i < 100; ++i) pair.far().send(std::string(1 << 20, 'b'));
  CHECK(far.num_lost == 0);
  REQUIRE(run_until(loop, [&] { return far.num_lost > 0; }));
  CHECK(far.messages == std::vector<std::string>{"a"});
  pair.far().send("into the void");
  run_for(loop, 0.02);
  CHECK(far.num_lost == 1);
}

TEST_CASE("a peer that leaves 64 MiB unread is lost") {
  EventLoop loop;
  Pair pair(loop);
  Inbox far;
  far.attach(pair.far());  // and pair.near() reads nothing
  const std::string message(kMaxMessageBytes, 'x');
  int num_sent = 0;
  while (far.num_lost == 0 && num_sent < 20) {
    pair.far().send(message);
    ++num_sent;
    loop.run_once(0);
    loop.run_once(0);
  }
  CHECK(far.lost == "left 64 MiB unread");
  CHECK(num_sent > 8);  // more than 64 MiB by what the system keeps
}

TEST_CASE("a message that is too long is refused where it is sent") {
  EventLoop loop;
  Pair pair(loop);
  CHECK_THROWS_MATCHES(pair.near().send(std::string(kMaxMessageBytes + 1, 'x')), trainer::DistributedError,
                       Message("control plane: a message of 8388609 bytes to " + pair.near().peer_address() +
                               "; expected at most 8388608"));
}

TEST_CASE("a connection may be destroyed in each of its calls") {
  EventLoop loop;
  Pair pair(loop);
  int num_messages = 0;
  std::unique_ptr<Connection> far = std::move(pair.server.peers.front());
  far->start({[&](std::string_view) {
                ++num_messages;
                far.reset();
              },
              [](const std::string&) { FAIL("lost after it was destroyed"); }});
  Inbox near;
  pair.near().start({[](std::string_view) {},
                     [&](const std::string&) {
                       ++near.num_lost;
                       pair.client.connection.reset();
                     }});
  for (int i = 0; i < 10; ++i) pair.near().send("x");
  REQUIRE(run_until(loop, [&] { return near.num_lost == 1 && num_messages == 1; }));
  run_for(loop, 0.02);
  CHECK(num_messages == 1);
}

TEST_CASE("start again changes who is called, between two messages too") {
  EventLoop loop;
  Pair pair(loop);
  Inbox later;
  int num_first = 0;
  pair.far().start({[&](std::string_view) {
                      ++num_first;
                      later.attach(pair.far());
                    },
                    {}});
  for (int i = 0; i < 3; ++i) pair.near().send(std::to_string(i));
  REQUIRE(run_until(loop, [&] { return later.messages.size() == 2; }));
  CHECK(num_first == 1);
  CHECK(later.messages.back() == "2");
}

TEST_CASE("a listener may be destroyed in its call, a connector in its") {
  EventLoop loop;
  std::unique_ptr<Connection> far, near;
  std::unique_ptr<Listener> listener;
  listener = listen(loop, listen_on(0, true), {"job", ""}, [&](std::unique_ptr<Connection> peer) {
    far = std::move(peer);
    listener.reset();
  });
  std::unique_ptr<Connector> connector;
  connector = connect(loop, "127.0.0.1", listener->port(), {"job", ""}, in_s(60),
                      {[&](std::unique_ptr<Connection> c) {
                         near = std::move(c);
                         connector.reset();
                       },
                       [](const std::string& reason) { FAIL(reason); }});
  REQUIRE(run_until(loop, [&] { return far != nullptr && near != nullptr; }));
  CHECK(listener == nullptr);
  CHECK(connector == nullptr);
}

TEST_CASE("IPv6 works where the host has it, and is named where it has not") {
  EventLoop loop;
  const Descriptor probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has_v6 = probe.is_open() &&
                      ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0;
  if (has_v6) {
    Pair pair(loop, "::1");
    CHECK(pair.near().peer_address() == "[::1]:" + std::to_string(pair.server.port()));
    CHECK(pair.near().local_address() == "::1");
    Inbox far;
    far.attach(pair.far());
    pair.near().send("six");
    REQUIRE(run_until(loop, [&] { return !far.messages.empty(); }));
  } else {
    CHECK_THROWS_AS(listen_on("::1", 0, "port"), trainer::DistributedError);
    Client client(loop, "::1", 1, {"job", ""}, 0.2);
    REQUIRE(run_until(loop, [&] { return client.is_over(); }));
    CHECK_THAT(client.reason, StartsWith("[::1]:1: "));
  }
}

TEST_CASE("destruction at any stage leaks no descriptor") {
  EventLoop loop;
  const size_t before = num_descriptors();
  for (int rounds = 0; rounds < 40; ++rounds) {  // so many rounds of the loop: every stage of the handshake
    Server server(loop);
    Client client(loop, "127.0.0.1", server.port());
    for (int i = 0; i < rounds; ++i) loop.run_once(100'000);
    if (rounds == 39) CHECK((client.connection != nullptr && server.peers.size() == 1));
  }
  {
    Client looking_up(loop, "localhost", 1, {"job", ""});
    Client refused(loop, "127.0.0.1", 1, {"job", ""});
    loop.run_once(0);
    loop.run_once(0);
  }
  CHECK(run_until(loop,
                  [&] { return num_descriptors() == before; }));  // the look-up's thread ends in its own time
}
