#include "net/socket.h"

#include <sys/socket.h>

#include <algorithm>

#include "core/error.h"
#include "fixture.h"
#include "net/address.h"

using namespace net_test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using trainer::DistributedError;

namespace {

bool can_connect(const std::string& host, int64_t port) {
  const Address to = resolve(host, port).addresses.at(0);
  const Descriptor socket(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.get(), to.raw(), to.size) == 0;
}

}  // namespace

TEST_CASE("the endpoint's address is the only one that it listens on") {
  const ListeningSockets at = listen_at("127.0.0.1", 0, "port");
  REQUIRE(at.sockets.size() == 1);
  CHECK(at.warning.empty());
  CHECK(can_connect("127.0.0.1", at.port));
  CHECK(!can_connect("127.0.0.2", at.port));
}

TEST_CASE("a name with several addresses has a socket for each, on one port") {
  for (int i = 0; i < 20; ++i) {
    const ListeningSockets at = listen_at("localhost", 0, "port");
    CHECK(at.warning.empty());
    for (const Descriptor& socket : at.sockets) CHECK(port_of(socket) == at.port);
    CHECK(can_connect("127.0.0.1", at.port));
  }
}

TEST_CASE("an address that no interface has means all interfaces, with a warning") {
  const ListeningSockets at = listen_at("192.0.2.1", 0, "launch.rdzv_endpoint");
  CHECK(at.warning ==
        "launch.rdzv_endpoint: no interface of this host has 192.0.2.1; listening on all interfaces");
  CHECK(can_connect("127.0.0.1", at.port));
  CHECK(can_connect("127.0.0.2", at.port));
}

TEST_CASE("a name that is loopback on its own host alone means all interfaces, with a warning") {
  const ListeningSockets at = listen_at("gpu7", resolve("127.0.1.1", 0), 0, "launch.master_addr");
  CHECK(at.warning ==
        "launch.master_addr: gpu7 is the loopback address 127.0.1.1 on this host (/etc/hosts); listening on "
        "all "
        "interfaces");
  CHECK(can_connect("127.0.0.2", at.port));
}

TEST_CASE("a port that is taken is named, with who holds it") {
  const Descriptor taken = listen_on("127.0.0.1", 0, "port");
  const int64_t port = port_of(taken);
  const std::string start = "launch.master_port: cannot listen on ";
  const std::string end = fmt::format("port {}: Address already in use\n  hint: pid {} (", port, ::getpid());
  CHECK_THROWS_WITH(listen_on(port, true), StartsWith(start + end));
  CHECK_THROWS_WITH(listen_on(port, false),
                    StartsWith(start + end) &&
                        EndsWith(") holds it; choose another port, or 0 for a free one on one node"));
  CHECK_THROWS_WITH(listen_at("127.0.0.1", port, "launch.master_port"),
                    StartsWith(start + "127.0.0.1 " + end));
  CHECK_THAT(holder_of_port(port), StartsWith(fmt::format("pid {} (", ::getpid())) && Contains("net_test"));
}

TEST_CASE("the holder of a port that nobody listens on is nobody") {
  Descriptor free = listen_on(0, true);
  const int64_t port = port_of(free);
  free.reset();
  CHECK(holder_of_port(port).empty());
}

TEST_CASE("an address that cannot be listened on is named") {
  CHECK_THROWS_WITH(listen_on("192.0.2.1", 0, "launch.local_addr"),
                    "launch.local_addr: cannot listen on 192.0.2.1 port 0: Cannot assign requested address\n"
                    "  hint: no interface of this host has this address (ip address)");
  CHECK_THROWS_WITH(
      listen_on("gpu7", 0, "launch.local_addr"),
      "launch.local_addr: cannot listen on \"gpu7\": expected the digits of an address of this host");
  CHECK_THROWS_WITH(listen_at("not an address", 0, "launch.master_addr"),
                    StartsWith("launch.master_addr: not an address: name does not resolve ("));
}
