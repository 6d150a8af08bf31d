#include "net/endpoint.h"

#include <catch2/catch.hpp>

#include "core/error.h"

using Catch::Matchers::Message;
using trainer::SpecError;
using trainer::net::Endpoint;
using trainer::net::parse_endpoints;

TEST_CASE("an endpoint is a host, with or without a port") {
  const auto one = [](const char* text) { return parse_endpoints(text, "x").at(0); };
  CHECK(one("gpu7") == Endpoint{"gpu7", 29500});
  CHECK(one("gpu7:0") == Endpoint{"gpu7", 0});
  CHECK(one("10.0.0.7:65535") == Endpoint{"10.0.0.7", 65535});
  CHECK(one("::1") == Endpoint{"::1", 29500});
  CHECK(one("fd00::7") == Endpoint{"fd00::7", 29500});
  CHECK(one("[fd00::7]") == Endpoint{"fd00::7", 29500});
  CHECK(one("[fe80::7%eth0]:1234") == Endpoint{"fe80::7%eth0", 1234});
  CHECK(parse_endpoints("gpu7", "x", 1234).at(0).port == 1234);
}

TEST_CASE("several endpoints are separated by commas") {
  CHECK(parse_endpoints("gpu7:1, [::1]:2 ,gpu9", "x") ==
        std::vector<Endpoint>{{"gpu7", 1}, {"::1", 2}, {"gpu9", 29500}});
}

TEST_CASE("what is no endpoint is named, with the reason") {
  const auto check = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_MATCHES(parse_endpoints(text, "launch.rdzv_endpoint"), SpecError,
                         Message("launch.rdzv_endpoint: got \"" + text + "\": " + what +
                                 "; expected host, host:port or [IPv6 address]:port"));
  };
  check("", "no host");
  check(":29500", "no host");
  check("gpu7:", "the port is no number from 0 to 65535");
  check("gpu7:http", "the port is no number from 0 to 65535");
  check("gpu7:65536", "the port is no number from 0 to 65535");
  check("gpu7:-1", "the port is no number from 0 to 65535");
  check("gpu7:1x", "the port is no number from 0 to 65535");
  check("[::1]:", "the port is no number from 0 to 65535");
  check("[::1", "no ] after [");
  check("[gpu7]:1", "no IPv6 address between the brackets");
  check("[::1]1", "something after ] that is no port");
  check("tcp://gpu7:1", "this is a URL");
  check("gpu 7", "a host has no spaces, slashes or brackets in it");
  CHECK_THROWS_AS(parse_endpoints("gpu7,", "x"), SpecError);
}
