#include "text/utf8_stream.h"

#include <catch2/catch.hpp>
#include <random>

#include "text/unicode.h"

namespace text = trainer::text;

namespace {

// The whole at once: what the pieces must add up to.
std::string replaced(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) text::append_utf8(text::next_code_point(bytes, i), out);
  return out;
}

}  // namespace

TEST_CASE("a character is held back until it is whole") {
  text::Utf8Stream stream;
  CHECK(stream.push("a\xF0\x9F") == "a");
  CHECK(stream.push("\x98").empty());
  CHECK(stream.push("\x80!") == "😀!");
  CHECK(stream.push("\xC3") == "");
  CHECK(stream.push("\xA9") == "é");
  CHECK(stream.finish().empty());
}

TEST_CASE("what never becomes a character is replaced at once, or at the end") {
  text::Utf8Stream stream;
  CHECK(stream.push("\xFFz") == "\uFFFDz");
  CHECK(stream.push("\xE2\x82") == "");
  CHECK(stream.push("x") == "\uFFFDx");
  CHECK(stream.push("\xED\xA0") == "\uFFFD\uFFFD");  // a surrogate
  CHECK(stream.push("\xE2\x82").empty());
  CHECK(stream.finish() == "\uFFFD");
  CHECK(stream.finish().empty());
}

TEST_CASE("pieces of any bytes add up to the whole with each ill-formed sequence replaced") {
  std::mt19937 rng(2);
  const std::string_view kinds[] = {
      "a",    "é",    "漢",   "😀",        "\xE2\x82", "\xF0\x9F\x98", "\xF4\x90", "\xED\xA0\x80",
      "\xC0", "\x80", "\xFF", "\xE0\x80", "\xF0\x80"};
  for (int run = 0; run < 5000; ++run) {
    std::string bytes;
    for (size_t i = rng() % 8; i > 0; --i) bytes += kinds[rng() % std::size(kinds)];
    text::Utf8Stream stream;
    std::string got;
    for (size_t i = 0, n; i < bytes.size(); i += n) {
      n = std::min<size_t>(1 + rng() % 3, bytes.size() - i);
      const std::string piece = stream.push(std::string_view(bytes).substr(i, n));
      CHECK(replaced(piece) == piece);  // whole characters
      got += piece;
    }
    got += stream.finish();
    REQUIRE(got == replaced(bytes));
  }
}
