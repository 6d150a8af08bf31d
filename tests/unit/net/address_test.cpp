#include "net/address.h"

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <set>

#include "core/error.h"

using namespace trainer::net;
using Catch::Matchers::Contains;
using Catch::Matchers::Message;
using Catch::Matchers::StartsWith;

TEST_CASE("digits are an address, written back as one writes them") {
  for (const char* text : {"127.0.0.1", "10.0.0.255", "::1", "fd00::7", "::"}) {
    const Resolved resolved = resolve(text, 29500);
    REQUIRE(resolved.addresses.size() == 1);
    CHECK(resolved.addresses[0].host() == text);
    CHECK(resolved.addresses[0].text() == host_port(text, 29500));
    CHECK(resolved.addresses[0].port() == 29500);
    CHECK(is_numeric_address(text));
  }
  CHECK(resolve("::ffff:10.0.0.7", 1).addresses.at(0).text() == "10.0.0.7:1");
  CHECK(host_port("fd00::7", 1) == "[fd00::7]:1");
  CHECK(!is_numeric_address("localhost"));
}

TEST_CASE("loopback and any are known by their digits") {
  const auto address = [](const char* text) { return resolve(text, 1).addresses.at(0); };
  for (const char* text : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"})
    CHECK(address(text).is_loopback());
  for (const char* text : {"10.0.0.7", "128.0.0.1", "fd00::1", "0.0.0.0"})
    CHECK(!address(text).is_loopback());
  CHECK((address("0.0.0.0").is_any() && address("::").is_any() && !address("::1").is_any()));
}

TEST_CASE("a name's addresses come once each; no name has a reason") {
  const Resolved localhost = resolve("localhost", 1);
  REQUIRE(!localhost.addresses.empty());
  std::set<std::string> texts;
  for (const Address& a : localhost.addresses) texts.insert(a.text());
  CHECK(texts.size() == localhost.addresses.size());
  CHECK(!resolve("not an address", 1).error.empty());
}

TEST_CASE("the interfaces are those that the system names") {
  std::set<std::string> expected, got;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> names(::if_nameindex(),
                                                                                   ::if_freenameindex);
  for (const struct if_nameindex* i = names.get(); i->if_index != 0; ++i) expected.insert(i->if_name);
  for (const Interface& i : interfaces()) got.insert(i.name);
  CHECK(got == expected);
  const auto all = interfaces();
  const auto lo = std::ranges::find_if(all, &Interface::is_loopback);
  REQUIRE(lo != all.end());
  CHECK(lo->is_up);
  CHECK(std::ranges::any_of(lo->addresses, [](const Address& a) { return a.host() == "127.0.0.1"; }));
  CHECK(address_of_interface(lo->name) == "127.0.0.1");
}

TEST_CASE("an interface that is not there is named, with those that are") {
  CHECK_THROWS_MATCHES(address_of_interface("eth99"), trainer::SpecError,
                       Catch::Predicate<trainer::SpecError>([](const trainer::SpecError& e) {
                         const std::string text = e.what();
                         return text.starts_with(
                                    "launch.interface: got \"eth99\"; expected an interface of this host "
                                    "that has an address: ") &&
                                text.find("lo (127.0.0.1)") != text.npos;
                       }));
}

TEST_CASE("this host is known by its name and by all of its addresses") {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  for (const char* local :
       {"localhost", "127.0.0.1", "127.0.0.5", "::1", "0.0.0.0", static_cast<const char*>(name)}) {
    INFO(local);
    CHECK(is_local_address(local));
  }
  for (const Interface& i : interfaces()) {
    for (const Address& a : i.addresses) CHECK(is_local_address(a.host()));
  }
  for (const char* other : {"192.0.2.1", "2001:db8::1", "not an address"}) CHECK(!is_local_address(other));
}

TEST_CASE("the address towards a host is that of the interface which routes there") {
  CHECK(local_address_towards("127.0.0.1", 29500) == "127.0.0.1");
  CHECK(local_address_towards("127.0.0.2", 29500).starts_with("127."));
  CHECK_THROWS_WITH(local_address_towards("not an address", 1),
                    StartsWith("not an address: name does not resolve ("));
  // The all-nodes address of no interface in particular has no route.
  CHECK_THROWS_WITH(local_address_towards("255.255.255.255", 1),
                    "255.255.255.255: no route to 255.255.255.255 from this host");
}
