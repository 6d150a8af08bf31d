#include "tokens/table.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer;
using Catch::Matchers::StartsWith;
using tokens::Table;

namespace {

const Table kFirst = {{"row", std::vector<int64_t>{0, 1}},
                      {"a \"name\"", std::vector<std::string>{"plain", "comma, quote \" and\nline"}},
                      {"p", std::vector<float>{0.1F, 1e-9F}}};
const Table kSecond = {{"row", std::vector<int64_t>{2}},
                       {"a \"name\"", std::vector<std::string>{""}},
                       {"p", std::vector<float>{1}}};

}  // namespace

TEST_CASE("a CSV table has one header, its parts in order and quotes where they are needed") {
  const TemporaryDirectory dir;
  const auto path = dir.path / "t.csv";
  const auto table = tokens::open_table(path);
  table->write(kFirst);
  table->write(kSecond);
  table->finish();
  CHECK(read_file(path) ==
        "row,\"a \"\"name\"\"\",p\n0,plain,0.1\n1,\"comma, quote \"\" and\nline\",1e-09\n2,,1\n");
}

TEST_CASE("a table replaces what was there when it is finished, and leaves nothing else") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("t.csv", "before");
  {
    const auto table = tokens::open_table(path);
    table->write(kFirst);
    CHECK(read_file(path) == "before");
  }
  CHECK(read_file(path) == "before");
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(dir.path),
                         std::filesystem::directory_iterator());
  };
  CHECK(files() == 1);
  const auto table = tokens::open_table(path);
  table->write(kSecond);
  table->finish();
  CHECK(read_file(path) == "row,\"a \"\"name\"\"\",p\n2,,1\n");
  CHECK(files() == 1);
}

TEST_CASE("a table that can not be written says why") {
  CHECK_THROWS_WITH(tokens::open_table("/nowhere/t.csv"),
                    StartsWith("/nowhere/t.csv.tmp") &&
                        Catch::Matchers::EndsWith(": cannot create: No such file or directory"));
}
