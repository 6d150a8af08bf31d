#include "core/program.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace fs = std::filesystem;

namespace trainer {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

fs::path program_directory() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

bool is_program(const fs::path& path) {
  std::error_code error;  // of a directory that may not be searched
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> find_in_path(const std::string& name) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(directory.size() + 1, rest.size()));
    const fs::path path = fs::path(directory) / name;
    if (is_program(path)) return path;
  }
  return std::nullopt;
}

std::vector<fs::path> python_packages(const fs::path& python, const std::string& package) {
  std::vector<fs::path> packages;
  std::error_code ignored;
  const fs::path lib = fs::absolute(python).parent_path().parent_path() / "lib";
  for (const auto& entry : fs::directory_iterator(lib, ignored)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* kind : {"site-packages", "dist-packages"})
      if (fs::path dir = entry.path() / kind / package; fs::exists(dir, ignored))
        packages.push_back(std::move(dir));
  }
  std::sort(packages.begin(), packages.end());
  return packages;
}

}  // namespace trainer
