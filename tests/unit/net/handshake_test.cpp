#include "net/handshake.h"

#include <catch2/catch.hpp>
#include <random>

#include "core/error.h"
#include "net/frame.h"

using namespace trainer::net;
using Catch::Matchers::Message;

namespace {

std::string hex(const Mac& mac) {
  std::string out;
  for (const unsigned char byte : mac) out += fmt::format("{:02x}", byte);
  return out;
}

// Carries bytes to and fro, `chunk` at a time, until nothing more comes. What each side sent.
std::pair<std::string, std::string> talk(Handshake& c, Handshake& l, size_t chunk = 1000) {
  std::pair<std::string, std::string> sent;
  while (true) {
    const std::string from_c = c.take_output();
    for (size_t i = 0; i < from_c.size(); i += chunk) l.receive(std::string_view(from_c).substr(i, chunk));
    const std::string from_l = l.take_output();
    for (size_t i = 0; i < from_l.size(); i += chunk) c.receive(std::string_view(from_l).substr(i, chunk));
    sent.first += from_c;
    sent.second += from_l;
    if (from_c.empty() && from_l.empty()) return sent;
  }
}

struct Sides {
  Sides(const Credentials& c_knows, const Credentials& l_knows)
      : c(Role::kConnecting, c_knows), l(Role::kListening, l_knows) {
    talk(c, l);
  }
  Handshake c, l;
};

}  // namespace

TEST_CASE("HMAC-SHA256 has the values of RFC 4231") {
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(
      hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("HMAC-SHA256 equals Python's, for an empty key too") {
  // hmac.new(key, message, "sha256").hexdigest()
  CHECK(hex(hmac_sha256("", "")) == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  CHECK(hex(hmac_sha256("", "trainer")) ==
        "3a06a0a1a53e7a6f90a13bc774072dd3da0d51bf605a77e04061a6e2b619dfe7");
  CHECK(hex(hmac_sha256("secret", std::string(1000, 'x'))) ==
        "d23f9e8cd080ddad360a90ae9f568b3fac50b8fde3e0715c690d248bc47cf2d7");
}

TEST_CASE("the proof on the wire is the HMAC that the header states") {
  Handshake c(Role::kConnecting, {"job", "secret"}), l(Role::kListening, {"job", "secret"});
  const auto [from_c, from_l] = talk(c, l);
  REQUIRE(c.refusal() == Refusal::kNone);
  REQUIRE(from_c.size() == 44 + 4 + 3 + 32);
  REQUIRE(from_l.size() == 44 + 4 + 1 + 32);
  CHECK(from_c.substr(0, 12) == std::string("\x8ftrainer\0\0\0\1", 12));
  const std::string nonces = from_c.substr(12, 32) + from_l.substr(12, 32);
  const std::string version("\0\0\0\1", 4);
  const auto proof = [&](char role) {
    const Mac mac =
        hmac_sha256("secret", std::string("trainer control plane ") + role + version + nonces + "job");
    return std::string(mac.begin(), mac.end());
  };
  CHECK(from_c.substr(44) == std::string("\0\0\0\x23", 4) + "job" + proof('C'));
  CHECK(from_l.substr(44) == std::string("\0\0\0\x21\0", 5) + proof('L'));
}

TEST_CASE("both sides know each other by id and token, however the bytes are cut") {
  for (const size_t chunk : {1, 2, 3, 7, 45, 1000}) {
    for (const char* token : {"", "secret"}) {
      Handshake c(Role::kConnecting, {"job", token}), l(Role::kListening, {"job", token});
      talk(c, l, chunk);
      CHECK((c.is_over() && l.is_over()));
      CHECK(c.refusal() == Refusal::kNone);
      CHECK(l.refusal() == Refusal::kNone);
    }
  }
}

TEST_CASE("what follows the handshake is kept") {
  Handshake c(Role::kConnecting, {"job", ""}), l(Role::kListening, {"job", ""});
  l.receive(c.take_output());
  c.receive(l.take_output());
  l.receive(c.take_output());
  c.receive(l.take_output() + "and more");
  CHECK(c.is_over());
  CHECK(c.take_rest() == "and more");
}

TEST_CASE("another token is told to both sides, an empty one too") {
  for (const auto& [one, other] :
       {std::pair("secret", "Secret"), std::pair("", "secret"), std::pair("secret", "")}) {
    const Sides sides({"job", one}, {"job", other});
    CHECK(sides.c.refusal() == Refusal::kOtherToken);
    CHECK(sides.l.refusal() == Refusal::kOtherToken);
    CHECK(sides.c.reason() == ": the tokens differ (launch.token)");
  }
}

TEST_CASE("another job is told by its id to one that knows the token, and without it to others") {
  const Sides known({"a", "secret"}, {"b", "secret"});
  CHECK(known.c.refusal() == Refusal::kOtherJob);
  CHECK(known.c.reason() == " runs another job (id \"b\", ours is \"a\")");
  CHECK(known.l.reason() == " runs another job (id \"a\", ours is \"b\")");
  Handshake c(Role::kConnecting, {"a", "guess"}), l(Role::kListening, {"hidden", "secret"});
  const std::string from_l = talk(c, l).second;
  CHECK(c.refusal() == Refusal::kOtherJob);
  CHECK(c.reason() == " runs another job (ours is \"a\")");
  CHECK(from_l.find("hidden") == from_l.npos);
}

TEST_CASE("another version is told as such, and by its number") {
  Handshake l(Role::kListening, {"job", ""});
  l.receive(std::string("\x8ftrainer\0\0\0\x07", 12));
  CHECK(l.refusal() == Refusal::kOtherVersion);
  CHECK(l.reason() == ": another version of trainer (it speaks protocol 7, this one 1)");
  CHECK(l.take_output().substr(0, 12) ==
        std::string("\x8ftrainer\0\0\0\1", 12));  // so that it can say the same
  Handshake c(Role::kConnecting, {"job", ""});
  c.receive(std::string("\x8ftrainer\0\0\0\x07", 12));
  CHECK(c.refusal() == Refusal::kOtherVersion);
}

TEST_CASE("what is no trainer is told at its first wrong byte, and gets none from us") {
  for (const std::string_view bytes :
       {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "SSH-2.0-OpenSSH_9.2\r\n", "\x8fX"}) {
    Handshake l(Role::kListening, {"job", "secret"});
    l.receive(bytes);
    CHECK(l.refusal() == Refusal::kNotTrainer);
    CHECK(l.take_output().empty());
    Handshake c(Role::kConnecting, {"job", "secret"});
    c.receive(bytes);
    CHECK(c.reason() == ": what answers there is not a trainer");
  }
}

TEST_CASE("a frame of a wrong length is no trainer's") {
  for (const uint32_t length : {0U, 31U, 289U, 0xffffffffU}) {
    Handshake c(Role::kConnecting, {"job", ""}), l(Role::kListening, {"job", ""});
    l.receive(c.take_output());
    const auto bytes = encode_u32(length);
    l.receive({bytes.data(), bytes.size()});
    CHECK(l.refusal() == Refusal::kNotTrainer);
  }
}

TEST_CASE("a recording proves nothing, to neither side") {
  Handshake c(Role::kConnecting, {"job", "secret"}), l(Role::kListening, {"job", "secret"});
  const auto [from_c, from_l] = talk(c, l);
  Handshake again(Role::kListening, {"job", "secret"});
  again.receive(from_c);
  CHECK(again.refusal() == Refusal::kOtherToken);
  Handshake fooled(Role::kConnecting, {"job", "secret"});
  fooled.receive(from_l);
  CHECK(fooled.refusal() == Refusal::kOtherToken);
}

TEST_CASE("an echo proves nothing") {
  Handshake c(Role::kConnecting, {"job", "secret"});
  c.receive(c.take_output());
  c.receive(c.take_output());
  CHECK(c.is_over());
  CHECK(c.refusal() != Refusal::kNone);
}

TEST_CASE("one that says welcome without a proof is refused") {
  Handshake c(Role::kConnecting, {"job", "secret"}), l(Role::kListening, {"job", "secret"});
  l.receive(c.take_output());
  c.receive(l.take_output());
  c.receive(std::string("\0\0\0\x21\0", 5) + std::string(32, 'x'));
  CHECK(c.refusal() == Refusal::kOtherToken);
}

TEST_CASE("a changed bit anywhere is never a peer") {
  for (size_t bit = 0; bit < (44 + 4 + 3 + 32) * 8; ++bit) {
    Handshake c(Role::kConnecting, {"job", "secret"}), l(Role::kListening, {"job", "secret"});
    const std::string greeting = c.take_output();
    size_t at = 0;
    const auto changed = [&](std::string bytes) {
      for (char& byte : bytes) {
        if (at++ == bit / 8) byte = static_cast<char>(byte ^ 1 << bit % 8);
      }
      return bytes;
    };
    l.receive(changed(greeting));
    c.receive(l.take_output());
    l.receive(changed(c.take_output()));
    REQUIRE((!l.is_over() || l.refusal() != Refusal::kNone));
  }
}

TEST_CASE("random bytes, seeded, are refused at every stage") {
  std::mt19937 random(4);
  for (int i = 0; i < 20'000; ++i) {
    Handshake c(Role::kConnecting, {"job", "secret"}), l(Role::kListening, {"job", "secret"});
    Handshake& target = i % 2 == 0 ? c : l;
    if (i % 4 >= 2) {  // past the greeting
      l.receive(c.take_output());
      c.receive(l.take_output());
    }
    std::string bytes(random() % 1024, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0)
      bytes.replace(0, std::min<size_t>(3, bytes.size()), std::min<size_t>(3, bytes.size()), '\0');
    target.receive(bytes);
    REQUIRE((!target.is_over() || target.refusal() != Refusal::kNone));
  }
}

TEST_CASE("a stranger's id is shown without what could harm a terminal") {
  Handshake l(Role::kListening, {"b", ""}), c(Role::kConnecting, {"a\x1b[2J\n\"", ""});
  talk(c, l);
  CHECK(l.reason() == " runs another job (id \"a?[2J??\", ours is \"b\")");
}

TEST_CASE("an id that is too long is named") {
  CHECK_THROWS_MATCHES(Handshake(Role::kConnecting, {std::string(257, 'x'), ""}), trainer::SpecError,
                       Message("launch.run_id: got 257 bytes; expected at most 256"));
}
