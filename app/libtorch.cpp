#include "libtorch.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/program.h"

namespace fs = std::filesystem;

namespace trainer::app {
namespace {

constexpr std::string_view kWanted =
    TRAINER_LIBTORCH_VERSION;  // "2.11": its interface is one of a minor version

[[noreturn]] void fail_installation(const std::string& message) {
  throw Error(ExitCode::kInternal, "installation error", message);
}

// What follows `prefix` in the first line of the file that has it, as far as it looks like "2.11.0+cu130".
std::string version_in(const fs::path& file, std::string_view prefix) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(prefix)) continue;
    const std::string rest = line.substr(prefix.size());
    return rest.substr(0, rest.find_first_of("'\")\r"));
  }
  return "";
}

class Search {
 public:
  explicit Search(std::string origin) : origin_(std::move(origin)) {}

  // Whether LibTorch of the wanted version is in `dir`; if not, notes why.
  std::optional<LibTorch> at(const fs::path& dir) {
    std::error_code ignored;
    if (!fs::exists(dir, ignored)) return note(dir, "does not exist");
    if (!fs::exists(dir / "lib/libtorch_cpu.so", ignored)) return note(dir, "has no lib/libtorch_cpu.so");
    std::string version = version_in(dir / "version.py", "__version__ = '");
    if (version.empty()) version = version_in(dir / "build-version", "");
    if (version.empty())
      version = version_in(dir / "share/cmake/Torch/TorchConfigVersion.cmake", "set(PACKAGE_VERSION \"");
    if (!version.starts_with(std::string(kWanted) + "."))
      return note(dir, version.empty() ? "is of unknown version" : "is version " + version);
    return LibTorch{fs::canonical(dir) / "lib", version};
  }

  std::nullopt_t note(const fs::path& dir, const std::string& fault) {
    looked_ += fmt::format("\n  {}: {}{}{}", origin_, dir.string(), dir.empty() ? "" : " ", fault);
    return std::nullopt;
  }

  void from(std::string origin) { origin_ = std::move(origin); }

  [[noreturn]] void fail() const {
    fail_installation(
        fmt::format("found no LibTorch {}; looked at{}\nhint: install it where python3 on PATH has its "
                    "packages (pip install "
                    "torch=={}.0), or set TRAINER_LIBTORCH to a LibTorch or a torch package directory",
                    kWanted, looked_, kWanted));
  }

 private:
  std::string origin_, looked_;
};

// Where Python itself would import it from (user and system folders, .pth files, the shims of pyenv); it is not imported.
fs::path ask_python() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen("python3 -c 'import importlib.util as u; s = u.find_spec(\"torch\"); "
              "print(s.submodule_search_locations[0] if s else \"\")' 2>/dev/null",
              "re"),
      ::pclose);
  std::array<char, 4096> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return {};
  const std::string_view text(line.data());
  return text.substr(0, text.find('\n'));
}

std::optional<LibTorch> find_by_python(Search& search) {
  const std::optional<fs::path> python = find_in_path("python3");
  search.from("python3 on PATH");
  if (!python) return search.note("", "there is none");
  const std::vector<fs::path> packages = python_packages(*python, "torch");
  for (const fs::path& dir : packages)
    if (auto found = search.at(dir)) return found;
  const fs::path dir = ask_python();
  if (dir.empty()) return search.note(*python, "has no torch package");
  if (std::find(packages.begin(), packages.end(), dir) != packages.end()) return std::nullopt;
  return search.at(dir);
}

// Executes this program again with the libstdc++ of the bundle, once; returns if there is none.
void start_over_with_fallback() {
  const fs::path fallback = program_directory().parent_path() / "lib/fallback";
  const std::string path = environment("LD_LIBRARY_PATH");
  if (!fs::exists(fallback / "libstdc++.so.6") || path.starts_with(fallback.string())) return;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::setenv("LD_LIBRARY_PATH", (fallback.string() + (path.empty() ? "" : ":" + path)).c_str(), 1);
  ::execv("/proc/self/exe", argv.data());
}

void* load(const fs::path& library, int flags) {
  if (void* handle = ::dlopen(library.c_str(), flags | RTLD_GLOBAL)) return handle;
  const std::string error = ::dlerror();
  if (error.find("libstdc++.so") != std::string::npos) start_over_with_fallback();
  fail_installation(fmt::format("cannot load {}: {}", library.string(), error));
}

}  // namespace

LibTorch find_libtorch() {
  Search search("TRAINER_LIBTORCH");
  if (const std::string dir = environment("TRAINER_LIBTORCH"); !dir.empty()) {
    if (auto found = search.at(dir)) return *found;
    search.fail();
  }
  search.from("beside the program");
  if (auto found = search.at(program_directory().parent_path() / "libtorch")) return *found;
  if (auto found = find_by_python(search)) return *found;
  search.fail();
}

void find_libtorch_for_workers() {
  ::setenv("TRAINER_LIBTORCH", find_libtorch().lib_dir.parent_path().c_str(), 1);
}

void* load_with_libtorch(const char* library, const char* entry) {
  // Its own libraries are found from where it is; those of ours that need it find it loaded.
  load(find_libtorch().lib_dir / "libtorch_cpu.so", RTLD_LAZY);
  return load_library(library, entry);
}

void* load_library(const char* library, const char* entry) {
  const fs::path path = program_directory().parent_path() / "lib" / library;
  void* symbol = ::dlsym(load(path, RTLD_NOW), entry);
  if (symbol == nullptr)
    fail_installation(
        fmt::format("{} is of another version of this program: {}", path.string(), ::dlerror()));
  return symbol;
}

}  // namespace trainer::app
