#include "generate/stop_strings.h"

#include <catch2/catch.hpp>

using trainer::generate::StopStrings;

TEST_CASE("text goes on up to a stop string, however it is cut into pieces") {
  const std::string text = "one two\nthree\n\nfour";
  for (size_t size = 1; size <= text.size(); ++size) {
    StopStrings stop({"\n\n", "five"});
    std::string got;
    for (size_t i = 0; i < text.size(); i += size) got += stop.push(text.substr(i, size));
    got += stop.finish();
    CHECK(got == "one two\nthree");
    CHECK(stop.stopped());
    CHECK(stop.push("more").empty());
  }
}

TEST_CASE("what may begin a stop string is held back until it is known, and is not lost at the end") {
  StopStrings stop({"abcd", "bx"});
  CHECK(stop.push("zab") == "z");
  CHECK(stop.push("c") == "");
  CHECK(stop.push("e") == "abce");
  CHECK(stop.push("ab") == "");
  CHECK(stop.finish() == "ab");
  CHECK_FALSE(stop.stopped());
}

TEST_CASE("the first of several stop strings counts") {
  StopStrings stop({"cd", "b"});
  CHECK(stop.push("abcd") == "a");
  CHECK(stop.stopped());
}

TEST_CASE("without stop strings all text is sure") {
  StopStrings stop({});
  CHECK(stop.push("abc") == "abc");
  CHECK(stop.finish().empty());
}
