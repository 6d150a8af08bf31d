#include "dist/cuda_plugin.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

namespace fs = std::filesystem;
using trainer::DistributedError;
using trainer::dist::load_cuda_plugin;

namespace {

std::string error_of_loading() {
  try {
    load_cuda_plugin();
    return "";
  } catch (const DistributedError& e) {
    return e.what();
  }
}

}  // namespace

// In this order: a library that is loaded stays so.
TEST_CASE(
    "the CUDA plugin says where it was looked for, why it does not load, and loads where it was built") {
  const TemporaryDirectory dir;
  const std::string path = (dir.path / "libtrainer_cuda.so").string();
  ::setenv("TRAINER_PLUGIN_DIR", dir.path.c_str(), 1);
  CHECK(error_of_loading() == "the job runs on CUDA, but there is no CUDA plugin (" + path +
                                  "); build with -DTRAINER_CUDA=ON where nvcc, NCCL and LibTorch's CUDA "
                                  "libraries are (scripts/setup.sh gets "
                                  "them), set TRAINER_PLUGIN_DIR to its folder, or set hardware.device: cpu");
  std::ofstream(path) << "not a library";
  CHECK(error_of_loading() ==
        "the CUDA plugin does not load: " + path +
            ": file too short; it needs a LibTorch of the version and CUDA it was built with");
  ::unsetenv("TRAINER_PLUGIN_DIR");

  const fs::path built =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libtrainer_cuda.so";
  if (fs::exists(built)) {
    CHECK(error_of_loading().empty());
  } else {
    CHECK(error_of_loading().find(built.string()) != std::string::npos);
  }
}
