#include "launch/output/log_file.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer::launch;
using trainer::read_file;

TEST_CASE(
    "a log that outgrows its bound goes on in a new file, at the end of a line, and the newest lines are "
    "there") {
  const TemporaryDirectory dir;
  const auto path = dir.path / "log";
  LogFile log(path, 100);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = fmt::format("line {}\n", i);
    all += line;
    // In two pieces, as they may come.
    CHECK(log.write(line.substr(0, 3)).empty());
    CHECK(log.write(line.substr(3)).empty());
  }
  const std::string kept = read_file(path.string() + ".1") + read_file(path);
  CHECK(kept.size() >= 100);
  CHECK(kept.size() <= 220);
  CHECK(all.substr(all.size() - kept.size()) == kept);
  CHECK(read_file(path).rfind("line ", 0) == 0);
}

TEST_CASE("a line without an end is bounded too") {
  const TemporaryDirectory dir;
  const auto path = dir.path / "log";
  LogFile log(path, 100);
  for (int i = 0; i < 1000; ++i) log.write("0123456789");
  CHECK(std::filesystem::file_size(path) <= 210);
  CHECK(std::filesystem::file_size(path.string() + ".1") <= 210);
}

TEST_CASE("an earlier run's older lines are not this run's") {
  const TemporaryDirectory dir;
  const auto path = dir.path / "log";
  { LogFile(path, 4).write("old\nolder\nnew\n"); }
  LogFile log(path, 4);
  CHECK_FALSE(std::filesystem::exists(path.string() + ".1"));
}

TEST_CASE("a full disk is told once, and what is missing when there is room again") {
  // A bound on the size of files stands for the disk.
  const TemporaryDirectory dir;
  const auto path = dir.path / "log";
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  LogFile log(path, 0);
  CHECK(log.write("first\n").empty());
  const rlimit full{6, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  const std::string told = log.write("second\n");
  const std::string again = log.write("third\n");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, action);
  CHECK(told == "is no longer logged: " + path.string() + ": File too large");
  CHECK(again.empty());
  CHECK(log.write("fourth\n") == "is logged again; 13 B are missing");
  CHECK(read_file(path) == "first\n\n[13 B are missing here: the disk was full]\nfourth\n");
}
