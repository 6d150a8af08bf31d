#pragma once

#include <filesystem>
#include <string>

// Where LibTorch is. The executable is linked to none, so that one archive serves every machine.

namespace trainer::app {

struct LibTorch {
  std::filesystem::path lib_dir;  // holds libtorch_cpu.so
  std::string version;            // "2.11.0+cu130"
};

// The first of the right version: TRAINER_LIBTORCH alone when it is set (a LibTorch or a torch package directory); the
// folder or link `libtorch` beside the executable's folder (a build tree has one); the torch package of the python3 on
// PATH. Python is run only when the package is not where its own prefix has it. Throws an installation error that says
// where it looked and what was there.
LibTorch find_libtorch();

// Finds it for this process's children too (in TRAINER_LIBTORCH), so that they need not look. Throws as above.
void find_libtorch_for_workers();

// Loads LibTorch, then `library` of this program, which is linked to it, and returns its function `entry`. Where the
// system's libstdc++ is too old, the process starts over (exec) with the one in ../lib/fallback: to be called before
// anything is changed that a second start would miss. Throws an installation error.
void* load_with_libtorch(const char* library, const char* entry);

// The same for a library of this program that needs no LibTorch.
void* load_library(const char* library, const char* entry);

}  // namespace trainer::app
