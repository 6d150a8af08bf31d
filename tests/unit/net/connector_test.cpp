#include "net/connector.h"

#include "fixture.h"
#include "net/address.h"

using namespace net_test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

// A port of 127.0.0.1 that is bound, and refuses until it listens.
struct Reserved {
  Reserved() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0);
    port = port_of(socket);
    text = "127.0.0.1:" + std::to_string(port);
  }
  Descriptor socket;
  int64_t port = 0;
  std::string text;
};

std::string reason_of(EventLoop& loop, const std::string& host, int64_t port, double limit_s,
                      const Credentials& credentials = {"job", "secret"}) {
  Client client(loop, host, port, credentials, limit_s);
  REQUIRE(run_until(loop, [&] { return client.is_over(); }));
  return client.reason;
}

// Answers whoever connects with `bytes`.
struct PlainServer {
  PlainServer(EventLoop& loop, std::string bytes)
      : loop(loop), bytes(std::move(bytes)), socket(listen_on(0, true)) {
    loop.add(socket.get(), EPOLLIN, [this](uint32_t) {
      accepted.emplace_back(::accept(socket.get(), nullptr, nullptr));
      plain_send(accepted.back(), this->bytes);
    });
  }
  ~PlainServer() { loop.remove(socket.get()); }
  EventLoop& loop;
  std::string bytes;
  Descriptor socket;
  std::vector<Descriptor> accepted;
};

}  // namespace

TEST_CASE("a connector tries again until somebody listens") {
  EventLoop loop;
  Reserved reserved;
  Client client(loop, "127.0.0.1", reserved.port);
  run_for(loop, 0.3);
  REQUIRE(!client.is_over());
  ::listen(reserved.socket.get(), 10);
  const auto listener = listen(loop, std::move(reserved.socket), {"job", "secret"}, [](auto) {});
  REQUIRE(run_until(loop, [&] { return client.is_over(); }));
  CHECK(client.connection != nullptr);
}

TEST_CASE("at the deadline the last failure is told") {
  EventLoop loop;
  const Reserved refuses;
  CHECK(reason_of(loop, "127.0.0.1", refuses.port, 0.2) == refuses.text + ": connection refused");
  CHECK_THAT(reason_of(loop, "not an address", 1, 1), StartsWith("not an address: name does not resolve ("));
  // TCP has no broadcast.
  CHECK_THAT(reason_of(loop, "255.255.255.255", 1, 0.2), StartsWith("255.255.255.255:1: no route to host"));
}

TEST_CASE("one that listens but does not speak, and one whose packets are dropped, are told apart") {
  EventLoop loop;
  const Descriptor silent = listen_on(0, true);
  CHECK_THAT(reason_of(loop, "127.0.0.1", port_of(silent), 0.2), Contains(": no handshake in 0.2 s"));
  Reserved full;  // the system drops what comes when the queue is full, as a firewall does
  ::listen(full.socket.get(), 0);
  std::vector<Descriptor> queue;
  for (int i = 0; i < 4; ++i) {
    queue.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const Address to = local_address_of(full.socket.get());
    ::connect(queue.back().get(), to.raw(), to.size);
  }
  CHECK_THAT(reason_of(loop, "127.0.0.1", full.port, 0.2), Contains(": no answer in 0.2 s"));
}

TEST_CASE(
    "another job, another token, another version and no trainer are told at once, not at the deadline") {
  EventLoop loop;
  constexpr double kFarS = 3600;
  Server server(loop, {"b", "secret"});
  const std::string at = "127.0.0.1:" + std::to_string(server.port());
  const CapturedErrors errors;
  CHECK(reason_of(loop, "127.0.0.1", server.port(), kFarS, {"a", "secret"}) ==
        at + " runs another job (id \"b\", ours is \"a\")");
  CHECK(reason_of(loop, "127.0.0.1", server.port(), kFarS, {"b", ""}) ==
        at + ": the tokens differ (launch.token)");
  CHECK(server.peers.empty());
  CHECK_THAT(errors.text(), Contains(" runs another job (id \"a\", ours is \"b\")"));

  PlainServer http(loop, "HTTP/1.1 400 Bad Request\r\n\r\n");
  CHECK(reason_of(loop, "127.0.0.1", port_of(http.socket), kFarS) ==
        "127.0.0.1:" + std::to_string(port_of(http.socket)) + ": what answers there is not a trainer");
  PlainServer other(loop, std::string("\x8ftrainer\0\0\0\2", 12));
  CHECK_THAT(reason_of(loop, "127.0.0.1", port_of(other.socket), kFarS),
             Contains(": another version of trainer (it speaks protocol 2, this one 1)"));
}

TEST_CASE("one that closes during the handshake is tried again") {
  EventLoop loop;
  Server server(loop);
  Client client(loop, "127.0.0.1", server.port());
  // 256 strangers push it out of the queue, again and again, until they stop.
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 3; ++i) {
    loop.run_once(1'000'000);
    for (int j = 0; j < 260; ++j) strangers.push_back(plain_connect(server.port()));
    strangers.clear();
  }
  REQUIRE(run_until(loop, [&] { return client.is_over(); }));
  CHECK(client.connection != nullptr);
}

TEST_CASE("all addresses of a name are tried") {
  EventLoop loop;
  Server server(loop);  // 127.0.0.1 only, while localhost may be ::1 first
  Client client(loop, "localhost", server.port());
  REQUIRE(run_until(loop, [&] { return client.is_over(); }));
  CHECK(client.connection != nullptr);
  REQUIRE(run_until(loop, [&] { return server.peers.size() == 1; }));
}

TEST_CASE("one try only fails at its first failure, with its kind") {
  EventLoop loop;
  const Reserved refuses;
  Failure failure;
  const auto connector = connect(
      loop, "127.0.0.1", refuses.port, {"job", ""}, in_s(3600), Tries::kOne, [](auto) {},
      [&](const Failure& f) { failure = f; });
  REQUIRE(run_until(loop, [&] { return !failure.text.empty(); }));
  CHECK(failure.kind == Failure::Kind::kRefused);
}

TEST_CASE("a deadline that has passed is told from the loop") {
  EventLoop loop;
  const Reserved refuses;
  Client client(loop, "127.0.0.1", refuses.port, {"job", ""}, -1);
  CHECK(!client.is_over());
  REQUIRE(run_until(loop, [&] { return client.is_over(); }));
}
