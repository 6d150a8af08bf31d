#pragma once

#include <filesystem>
#include <string>

namespace trainer::app {

// A new directory <base>/<run_id>_<random>, as torchrun's. Throws SpecError.
std::filesystem::path make_log_directory(const std::filesystem::path& base, std::string run_id);

// One below $TMPDIR or /tmp, for what no one asked to keep: `remove` ends it.
class TemporaryLogDirectory {
 public:
  explicit TemporaryLogDirectory(const std::string& run_id);
  const std::filesystem::path& path() const { return path_; }
  void remove() const;

 private:
  std::filesystem::path path_;
};

}  // namespace trainer::app
