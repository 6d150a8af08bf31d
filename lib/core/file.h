#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace trainer {

// Whole file as bytes. Throws DataError with path and reason, SpecError when there is no such file.
std::string read_file(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, fsyncs, renames: readers see the old or the new file, never a
// part. Throws CheckpointError.
void write_file_atomic(const std::filesystem::path& path, std::string_view contents);

// Replaces directory `target` by directory `source` (same file system); fsyncs source's files first. Readers
// see the old or the new one; after a crash between the two renames the old one stands as `<target>.old`.
// Throws CheckpointError.
void replace_directory(const std::filesystem::path& source, const std::filesystem::path& target);

// Read-only memory map of a whole file; an empty file maps to an empty view. Throws as read_file().
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Holds a directory for this process until it ends, however it ends: a lock on the file .lock in it.
class DirectoryLock {
 public:
  // Makes the directory. Throws SpecError when another process holds it ("<directory>: is in use by another
  // run").
  explicit DirectoryLock(const std::filesystem::path& directory);

 private:
  Descriptor fd_;
};

}  // namespace trainer
