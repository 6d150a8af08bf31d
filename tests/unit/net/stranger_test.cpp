// What the internet does to an open port: it must neither stop nor stall a job.
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "fixture.h"
#include "net/frame.h"
#include "net/handshake.h"

using namespace net_test;

namespace {

// That a peer of ours can still come in and be heard.
void check_open(EventLoop& loop, Server& server) {
  const size_t before = server.peers.size();
  Client client(loop, "127.0.0.1", server.port());
  REQUIRE(run_until(loop, [&] { return client.is_over() && server.peers.size() > before; }));
  REQUIRE(client.reason.empty());
  Inbox far;
  far.attach(*server.peers.back());
  client.connection->send("hello");
  REQUIRE(run_until(loop, [&] { return !far.messages.empty(); }));
  server.peers.pop_back();
}

// The two sides' bytes of a handshake over a plain socket, which stays open; `c` says how it went.
std::pair<std::string, std::string> shake_hands(EventLoop& loop, const Descriptor& socket, Handshake& c) {
  std::pair<std::string, std::string> bytes;
  REQUIRE(run_until(loop, [&] {
    const std::string out = c.take_output();
    plain_send(socket, out);
    bytes.first += out;
    const std::string in = plain_receive(socket);
    c.receive(in);
    bytes.second += in;
    return c.is_over();
  }));
  return bytes;
}

}  // namespace

TEST_CASE("thousands of strangers with random bytes stop nothing, and write few lines") {
  EventLoop loop;
  Server server(loop);
  Client friend_of_ours(loop, "127.0.0.1", server.port());
  REQUIRE(run_until(loop, [&] { return friend_of_ours.connection != nullptr && server.peers.size() == 1; }));
  Inbox far;
  far.attach(*server.peers.front());
  const CapturedErrors errors;
  const int64_t begin_ns = monotonic_ns();
  std::mt19937 random(13);
  const std::string greeting = Handshake(Role::kConnecting, {"job", "secret"}).take_output();
  constexpr int kNumStrangers = 3000;
  for (int i = 0; i < kNumStrangers; ++i) {
    Descriptor socket = plain_connect(server.port());
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 2 == 0) bytes = greeting + bytes;
    if (i % 5 == 0) bytes = std::string("\x8ftrainer", 8) + bytes;
    plain_send(socket, bytes);
    if (i % 3 == 0) ::shutdown(socket.get(), SHUT_WR);
    if (i % 3 == 1) reset(socket);
    friend_of_ours.connection->send(std::to_string(i));
    loop.run_once(0);
  }
  REQUIRE(run_until(loop, [&] { return far.messages.size() == kNumStrangers; }));
  CHECK(server.peers.size() == 1);
  check_open(loop, server);
  const std::string text = errors.text();
  const double elapsed_s = static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
  CHECK(static_cast<double>(std::ranges::count(text, '\n')) <= elapsed_s + 1);
  CHECK(text.find("warning: refused a connection from 127.0.0.1:") != text.npos);
}

TEST_CASE("other protocols and a port scanner's habits are sent away") {
  EventLoop loop;
  Server server(loop);
  const CapturedErrors errors;
  const std::string client_hello("\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03", 11);
  std::vector<Descriptor> sockets;
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: gpu7\r\n\r\n"), client_hello,
                                   std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string("\r\n\r\n"),
                                   std::string("\x80\0\0\x28\x72\xfe\x1d\x13", 8), std::string(4096, '\0')}) {
    sockets.push_back(plain_connect(server.port()));
    plain_send(sockets.back(), bytes);
  }
  REQUIRE(run_until(loop, [&] { return std::ranges::all_of(sockets, is_closed); }));
  for (int i = 0; i < 200; ++i) {
    Descriptor socket = plain_connect(server.port());
    if (i % 2 == 0) reset(socket);
  }
  Descriptor half_closed = plain_connect(server.port());
  ::shutdown(half_closed.get(), SHUT_WR);
  REQUIRE(run_until(loop, [&] { return is_closed(half_closed); }));
  check_open(loop, server);
  CHECK(server.peers.empty());
}

TEST_CASE(
    "those that connect and say nothing are not logged, and the oldest have to go when there are too many") {
  EventLoop loop;
  Server server(loop);
  const CapturedErrors errors;
  std::vector<Descriptor> silent;
  for (int i = 0; i < 500; ++i) {
    silent.push_back(plain_connect(server.port()));
    loop.run_once(0);
  }
  check_open(loop, server);
  CHECK(std::ranges::count_if(silent, is_closed) >= 500 - 256);
  CHECK(std::ranges::none_of(silent.end() - 200, silent.end(), is_closed));
  const bool all_closed = run_until(loop, [&] { return std::ranges::all_of(silent, is_closed); });  // 3 s
  CHECK(all_closed);
  CHECK(errors.text().empty());
}

TEST_CASE("one that sends a byte now and then has the time of all others, no more") {
  EventLoop loop;
  Server server(loop);
  const CapturedErrors errors;
  Handshake c(Role::kConnecting, {"job", "secret"});
  const std::string greeting = c.take_output();
  const Descriptor slow = plain_connect(server.port());
  size_t num_sent = 0;
  const int64_t begin_ns = monotonic_ns();
  REQUIRE(run_until(loop, [&] {
    if (num_sent < greeting.size() &&
        monotonic_ns() - begin_ns > static_cast<int64_t>(num_sent) * 100'000'000) {
      plain_send(slow, greeting.substr(num_sent++, 1));
      if (num_sent == 10) check_open(loop, server);
    }
    return is_closed(slow);
  }));
  CHECK(num_sent < greeting.size());
  CHECK(errors.text().find(": no handshake in ") != std::string::npos);
}

TEST_CASE("a recorded handshake opens nothing") {
  EventLoop loop;
  Server server(loop);
  Handshake c(Role::kConnecting, {"job", "secret"});
  const Descriptor first = plain_connect(server.port());
  const std::string recorded = shake_hands(loop, first, c).first;
  REQUIRE(c.refusal() == Refusal::kNone);
  REQUIRE(server.peers.size() == 1);
  const CapturedErrors errors;
  const Descriptor second = plain_connect(server.port());
  plain_send(second, recorded);
  std::string heard;
  REQUIRE(run_until(loop, [&] {
    heard += plain_receive(second);
    return is_closed(second);
  }));
  CHECK(server.peers.size() == 1);
  CHECK(heard.size() == 44 + 4 + 1);  // greeting and a refusal without any proof
}

TEST_CASE("a peer of ours that sends a length beyond the limit is lost, and named") {
  EventLoop loop;
  Server server(loop);
  Handshake c(Role::kConnecting, {"job", "secret"});
  const Descriptor socket = plain_connect(server.port());
  shake_hands(loop, socket, c);
  Inbox far;
  far.attach(*server.peers.at(0));
  plain_send(socket, std::string("\0\0\0\2ok\xff\xff\xff\xff", 10));
  REQUIRE(run_until(loop, [&] { return far.num_lost > 0; }));
  CHECK(far.messages == std::vector<std::string>{"ok"});
  CHECK(far.lost == "it sent a message of 4294967295 bytes; expected at most 8388608");
}

TEST_CASE("a peer that resets or half-closes is lost") {
  EventLoop loop;
  Server server(loop);
  const auto [is_reset, reason] =
      GENERATE(std::pair(true, "connection reset by peer"), std::pair(false, "closed by the peer"));
  Handshake c(Role::kConnecting, {"job", "secret"});
  Descriptor socket = plain_connect(server.port());
  shake_hands(loop, socket, c);
  Inbox far;
  far.attach(*server.peers.at(0));
  plain_send(socket, std::string("\0\0\0\1a\0\0\0\5cut", 12));
  REQUIRE(run_until(loop, [&] { return far.messages.size() == 1; }));
  if (is_reset) {
    reset(socket);
  } else {
    ::shutdown(socket.get(), SHUT_WR);
  }
  REQUIRE(run_until(loop, [&] { return far.num_lost > 0; }));
  CHECK(far.messages == std::vector<std::string>{"a"});
  CHECK(far.lost == reason);
}

TEST_CASE("without descriptors a listener waits, and goes on when there are some") {
  EventLoop loop;
  Server server(loop);
  std::vector<Descriptor> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(plain_connect(server.port()));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{static_cast<rlim_t>(waiting.back().get()) + 1, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  int num_rounds = 0;
  const int64_t end_ns = in_s(0.5);
  while (monotonic_ns() < end_ns) {
    loop.run_once(end_ns - monotonic_ns());
    ++num_rounds;
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(num_rounds < 100);  // it pauses; a loop that spins makes many thousands
  check_open(loop, server);
}
