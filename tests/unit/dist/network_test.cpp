#include "dist/network.h"

#include <catch2/catch.hpp>

#include "core/error.h"

using Catch::Matchers::Message;
using trainer::World;
using trainer::dist::reachable_address;

namespace {

World world_of(const std::string& master_addr, int64_t num_nodes) {
  World w;
  w.num_nodes = num_nodes;
  w.master_addr = master_addr;
  w.master_port = 29500;
  return w;
}

}  // namespace

TEST_CASE("ranks of one node meet on loopback, whatever MASTER_ADDR is") {
  CHECK(reachable_address(world_of("nonexistent.invalid", 1)) == "127.0.0.1");
}

TEST_CASE("with several nodes, the address is that of the interface which routes to MASTER_ADDR") {
  CHECK(reachable_address(world_of("127.0.0.1", 2)) == "127.0.0.1");
  CHECK(reachable_address(world_of("127.0.0.2", 2)).starts_with("127."));
}

TEST_CASE("a MASTER_ADDR that does not resolve is named") {
  CHECK_THROWS_MATCHES(
      reachable_address(world_of("not an address", 2)), trainer::DistributedError,
      Message("MASTER_ADDR 'not an address': Name or service not known; expected a name or an address that "
              "every node can reach"));
}
