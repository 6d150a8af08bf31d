#pragma once

#include <string>

#include "core/descriptor.h"

namespace trainer {

// Holds the output of a command for this process: a lock on <output>.lock, which goes with it.
class OutputLock {
 public:
  // Throws SpecError when another process holds it, DataError when the file cannot be made.
  explicit OutputLock(const std::string& output);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string path_;
  Descriptor fd_;
};

}  // namespace trainer
