#include "core/program.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "temporary_directory.h"

namespace fs = std::filesystem;
using namespace trainer;

TEST_CASE("a program is the first on PATH that can be executed") {
  const TemporaryDirectory dir;
  const std::string text = dir.write("a/tool", "not executable");
  const std::string tool = dir.write("b/tool", "#!/bin/sh\n");
  fs::permissions(tool, fs::perms::owner_all);
  fs::create_directories(dir.path / "c/tool");  // a folder of that name
  const std::string before = environment("PATH");
  const std::string root = dir.path.string();
  ::setenv("PATH", (root + "/c:" + root + "/none:" + root + "/a:" + root + "/b").c_str(), 1);
  CHECK(find_in_path("tool") == fs::path(tool));
  CHECK_FALSE(find_in_path("other"));
  ::setenv("PATH", before.c_str(), 1);
  CHECK(fs::exists(program_directory()));
  CHECK(environment("TRAINER_NO_SUCH_VARIABLE").empty());
}

TEST_CASE("packages are found beside an interpreter") {
  const TemporaryDirectory dir;
  const std::string python = dir.write("bin/python3", "");
  dir.write("lib/python3.12/site-packages/torch/version.py", "");
  dir.write("lib/python3/dist-packages/torch/version.py", "");
  dir.write("lib/python3.12/site-packages/pyarrow/lib.so", "");
  dir.write("lib/perl/site-packages/torch/version.py", "");
  CHECK(python_packages(python, "torch") ==
        std::vector<fs::path>{dir.path / "lib/python3/dist-packages/torch",
                              dir.path / "lib/python3.12/site-packages/torch"});
  CHECK(python_packages(python, "numpy").empty());
}
