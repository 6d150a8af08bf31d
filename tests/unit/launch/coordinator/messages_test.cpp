#include "launch/coordinator/messages.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/error.h"

using namespace trainer::launch;
using Catch::Matchers::Contains;

TEST_CASE("a message arrives as it was sent") {
  Failure failure;
  failure.rank = 3;
  failure.message = "caf\xc3\xa9 \"x\"\n";
  failure.tail = {"a", "b"};
  const Message exited = decode(encode(Exited{2, failure}));
  REQUIRE(std::holds_alternative<Exited>(exited));
  CHECK(std::get<Exited>(exited).attempt == 2);
  CHECK(std::get<Exited>(exited).failure.message == failure.message);
  CHECK(std::get<Exited>(exited).failure.tail == failure.tail);
  const Message start = decode(encode(Start{{1, 2, 3, 4, 5, 6, "fd00::7", 29500}}));
  CHECK(std::get<Start>(start).assignment.master_addr == "fd00::7");
  CHECK(std::get<Start>(start).assignment.restarts == 6);
  CHECK(std::holds_alternative<AskSave>(decode(encode(AskSave{}))));
  const Message probe = decode(encode(Probe{{"h"}, {{"10.0.0.1", 5}}}));
  CHECK(std::get<Probe>(probe).peers.at(0).port == 5);
}

TEST_CASE("bytes that are no text pass as replacement characters") {
  const Message note = decode(encode(Note{"bad \xff byte"}));
  CHECK(std::get<Note>(note).text == "bad \xef\xbf\xbd byte");
}

TEST_CASE("what is no message is refused") {
  CHECK_THROWS_WITH(decode("{"), Contains("a malformed message"));
  CHECK_THROWS_WITH(decode("[1]"), Contains("a malformed message"));
  CHECK_THROWS_WITH(decode("{\"type\":\"start\"}"), Contains("a malformed message"));
  CHECK_THROWS_WITH(decode("{\"type\":\"dance\"}"),
                    "a message of unknown type \"dance\": another version of trainer");
  CHECK_THROWS_AS(decode("{\"type\":\"note\",\"text\":7}"), trainer::DistributedError);
}
