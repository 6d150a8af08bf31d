#include "core/file.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

namespace fs = std::filesystem;
using Catch::Matchers::Message;

TEST_CASE("an atomic write replaces the whole file and leaves no temporary") {
  const TemporaryDirectory dir;
  const fs::path file = dir.path / "a.txt";
  trainer::write_file_atomic(file, "a long first text");
  trainer::write_file_atomic(file, "second");
  CHECK(trainer::read_file(file) == "second");
  CHECK(std::distance(fs::directory_iterator(dir.path), fs::directory_iterator()) == 1);
}

TEST_CASE("a directory is replaced whole") {
  const TemporaryDirectory dir;
  for (const char* text : {"one", "two"}) {
    fs::create_directories(dir.path / "new");
    std::ofstream(dir.path / "new" / "f") << text;
    trainer::replace_directory(dir.path / "new", dir.path / "model");
    CHECK(trainer::read_file(dir.path / "model" / "f") == text);
  }
  CHECK_FALSE(fs::exists(dir.path / "model.old"));
  CHECK_FALSE(fs::exists(dir.path / "new"));
}

TEST_CASE("a missing file is named with the reason") {
  CHECK_THROWS_MATCHES(trainer::read_file("/nowhere/x"), trainer::SpecError,
                       Message("/nowhere/x: cannot open: No such file or directory"));
  CHECK_THROWS_MATCHES(trainer::MappedFile("/tmp"), trainer::DataError,
                       Message("/tmp: is a directory, expected a file"));
  CHECK_THROWS_MATCHES(
      trainer::write_file_atomic("/proc/nothing", "x"), trainer::CheckpointError,
      Catch::Matchers::Predicate<trainer::Error>(
          [](const auto& e) { return std::string(e.what()).find("/proc/nothing") == 0; }, "names the path"));
}

TEST_CASE("a mapped file has the file's bytes, an empty one none") {
  const TemporaryDirectory dir;
  trainer::write_file_atomic(dir.path / "f", std::string_view("a\0b", 3));
  trainer::write_file_atomic(dir.path / "empty", "");
  CHECK(trainer::MappedFile(dir.path / "f").bytes() == std::string_view("a\0b", 3));
  CHECK(trainer::MappedFile(dir.path / "empty").bytes().empty());
}

TEST_CASE("a directory is held by one process at a time") {
  const TemporaryDirectory dir;
  {
    const trainer::DirectoryLock lock(dir.path / "run");
    CHECK_THROWS_MATCHES(trainer::DirectoryLock(dir.path / "run"), trainer::SpecError,
                         Message((dir.path / "run").string() +
                                 ": is in use by another run; hint: give this one another job.output_dir"));
  }
  CHECK_NOTHROW(trainer::DirectoryLock(dir.path / "run"));
  CHECK_THROWS_AS(trainer::DirectoryLock("/proc/nothing"), trainer::SpecError);
}
