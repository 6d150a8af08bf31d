#include <dlfcn.h>

#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/program.h"
#include "tokens/documents.h"
#include "tokens/parquet/plugin.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

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
  if (const std::optional<fs::path> python = find_in_path("python3")) {
    for (const fs::path& dir : python_packages(*python, "pyarrow")) directories.push_back(dir);
  }
  return directories;
}

void* load_plugin() {
  const fs::path plugin = program_directory().parent_path() / "lib" / kParquetLibrary;
  if (!fs::exists(plugin)) {
    fail<DataError>("no Parquet: there is no {}: this program was built where no pyarrow was",
                    plugin.string());
  }
  // The plugin finds them loaded: their names end in the version that it was built with.
  std::string looked;
  for (const fs::path& directory : package_directories()) {
    looked += "\n  " + directory.string();
    for (const char* library : {TRAINER_ARROW_LIBRARY, TRAINER_PARQUET_LIBRARY}) {
      ::dlopen((directory / library).c_str(), RTLD_LAZY | RTLD_GLOBAL);
    }
    if (void* handle = ::dlopen(plugin.c_str(), RTLD_NOW)) return handle;
  }
  const char* reason = ::dlerror();
  fail<DataError>(
      "no Parquet: {}; looked for {} in{}\nhint: pip install 'pyarrow=={}.*', or set "
      "TRAINER_PYARROW to the "
      "folder of such a package",
      reason != nullptr ? reason : "no Arrow", TRAINER_ARROW_LIBRARY, looked, TRAINER_ARROW_VERSION);
}

template <class Function>
Function* find(const char* name) {
  static void* const plugin = load_plugin();
  return reinterpret_cast<Function*>(::dlsym(plugin, name));
}

}  // namespace

std::unique_ptr<DocumentReader> open_parquet(const std::string& file, const std::string& field) {
  std::unique_ptr<DocumentReader> reader;
  find<OpenParquet>(kOpenParquet)(file, field, reader);
  return reader;
}

std::unique_ptr<TableWriter> create_parquet(const std::string& file) {
  std::unique_ptr<TableWriter> table;
  find<CreateParquet>(kCreateParquet)(file, table);
  return table;
}

}  // namespace trainer::tokens
