#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "tokens/documents.h"
#include "tokens/parquet/plugin.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

fs::path program_directory() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Folders where the pyarrow package may be: TRAINER_PYARROW alone when it is set; else beside the torch package that is
// used, in the packages of the python3 on PATH.
std::vector<fs::path> package_directories() {
  if (const std::string dir = environment("TRAINER_PYARROW"); !dir.empty()) return {dir};
  std::vector<fs::path> directories;
  std::error_code ignored;
  for (const fs::path& torch :
       {fs::path(environment("TRAINER_LIBTORCH")), program_directory().parent_path() / "libtorch"}) {
    if (const fs::path there = fs::canonical(torch, ignored); !there.empty()) {
      directories.push_back(there.parent_path() / "pyarrow");
    }
  }
  const std::string path = environment("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path bin = path.substr(begin, end - begin);
    begin = end + 1;
    if (!fs::exists(bin / "python3", ignored)) continue;
    for (const auto& entry : fs::directory_iterator(bin.parent_path() / "lib", ignored)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* kind : {"site-packages", "dist-packages"})
        directories.push_back(entry.path() / kind / "pyarrow");
    }
    break;
  }
  return directories;
}

OpenParquet* load_plugin() {
  const fs::path plugin = program_directory().parent_path() / "lib" / kParquetLibrary;
  if (!fs::exists(plugin)) {
    fail<DataError>("Parquet cannot be read: there is no {}: this program was built where no pyarrow was",
                    plugin.string());
  }
  // The plugin finds them loaded: their names end in the version that it was built with.
  std::string looked;
  for (const fs::path& directory : package_directories()) {
    looked += "\n  " + directory.string();
    for (const char* library : {TRAINER_ARROW_LIBRARY, TRAINER_PARQUET_LIBRARY}) {
      ::dlopen((directory / library).c_str(), RTLD_LAZY | RTLD_GLOBAL);
    }
    if (void* handle = ::dlopen(plugin.c_str(), RTLD_NOW)) {
      if (void* symbol = ::dlsym(handle, kOpenParquet)) return reinterpret_cast<OpenParquet*>(symbol);
    }
  }
  const char* reason = ::dlerror();
  fail<DataError>(
      "Parquet cannot be read: {}; looked for {} in{}\nhint: pip install 'pyarrow=={}.*', or set "
      "TRAINER_PYARROW to the "
      "folder of such a package",
      reason != nullptr ? reason : "no Arrow", TRAINER_ARROW_LIBRARY, looked, TRAINER_ARROW_VERSION);
}

}  // namespace

std::unique_ptr<DocumentReader> open_parquet(const std::string& file, const std::string& field) {
  static OpenParquet* const open = load_plugin();
  std::unique_ptr<DocumentReader> reader;
  open(file, field, reader);
  return reader;
}

}  // namespace trainer::tokens
