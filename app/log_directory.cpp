#include "log_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace trainer::app {

namespace fs = std::filesystem;

fs::path make_log_directory(const fs::path& base, std::string run_id) {
  for (char& c : run_id) {
    if (c == '/') c = '_';
  }
  std::error_code error;
  fs::create_directories(base, error);
  std::string path = (fs::absolute(base) / (run_id + "_XXXXXX")).string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    fail<SpecError>("launch.log_dir: cannot make a directory in {}: {}", base.string(),
                    error ? error.message() : std::strerror(errno));
  }
  return path;
}

TemporaryLogDirectory::TemporaryLogDirectory(const std::string& run_id) {
  const char* base = std::getenv("TMPDIR");
  path_ = make_log_directory(base != nullptr && *base != '\0' ? base : "/tmp", "trainer_" + run_id);
}

void TemporaryLogDirectory::remove() const {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace trainer::app
