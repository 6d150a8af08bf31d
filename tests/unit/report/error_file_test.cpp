#include "report/error_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer::report;

namespace {

std::optional<ErrorReport> read_text(const std::string& text) {
  const TemporaryDirectory dir;
  std::ofstream(dir.path / "error.json") << text;
  return read_error_file(dir.path / "error.json");
}

}  // namespace

TEST_CASE("an error file has torchelastic's form") {
  const TemporaryDirectory dir;
  write_error_file(dir.path / "error.json", {"data error: bad \xff byte", 1700000000.9, 12});
  const auto json = nlohmann::json::parse(trainer::read_file(dir.path / "error.json"));
  CHECK(json["message"]["message"] == "data error: bad \xef\xbf\xbd byte");  // U+FFFD: JSON is UTF-8
  CHECK(json["message"]["extraInfo"]["timestamp"] == "1700000000");
  CHECK(json["message"]["extraInfo"]["py_callstack"] == "");
  CHECK(json["message"]["extraInfo"]["step"] == 12);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path), {}) == 1);
}

TEST_CASE("error files of PyTorch programs are read") {
  const auto python = read_text(
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1700000000"}}})");
  REQUIRE(python);
  CHECK(python->message == "ValueError: no");
  CHECK(python->timestamp_s == 1700000000);
  const auto plain = read_text(R"({"message": "text", "timestamp": 5})");
  REQUIRE(plain);
  CHECK(plain->message == "text");
  CHECK(plain->timestamp_s == 5);
}

TEST_CASE("a missing or malformed error file is none") {
  CHECK_FALSE(read_error_file("/no/such/error.json"));
  CHECK_FALSE(read_text(""));
  CHECK_FALSE(read_text("{\"message\": {\"mess"));
  CHECK_FALSE(read_text("[1, 2]"));
  CHECK_FALSE(read_text("{\"message\": 7}"));
}
