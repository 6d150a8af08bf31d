#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/output_lock.h"

namespace trainer::records {

// A directory that a command writes: readers see all of it or what was there before. One command at a time has it.
class OutputDirectory {
 public:
  // Throws SpecError when there is something that no earlier run wrote, or `force` is false and one did, one of `inputs` is in
  // it, or another process writes it; DataError when it cannot be made.
  OutputDirectory(const std::string& output, bool force, const std::vector<std::string>& inputs);
  // Removes what is not committed.
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // Where to write, until commit() gives it the name of the output.
  const std::filesystem::path& partial() const { return partial_; }
  const std::filesystem::path& path() const { return path_; }
  void commit();

 private:
  std::filesystem::path path_, partial_;
  std::optional<OutputLock> lock_;
};

}  // namespace trainer::records
