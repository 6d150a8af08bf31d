#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace trainer::launch {

// A worker's stream on disk. With a bound, a file that would outgrow it is renamed to <path>.1, in place of an older
// one, at the end of a line, and a new one begun: the newest lines are always in <path>, or at the end of <path>.1. While
// the disk is full the job goes on and what does not fit is missing; a line in the log says how much.
class LogFile {
 public:
  LogFile() = default;  // of nothing
  // `max_bytes` 0: no bound. Throws SpecError when the file can't be created.
  LogFile(std::filesystem::path path, int64_t max_bytes);

  // What people should be told: that logging has stopped, or that it goes on again; mostly empty.
  std::string write(std::string_view bytes);

 private:
  void rotate();
  bool append(std::string_view bytes);

  std::filesystem::path path_;
  Descriptor file_;
  int64_t max_bytes_ = 0;
  int64_t size_ = 0;
  int64_t missing_ = 0;  // bytes since the disk is full
};

}  // namespace trainer::launch
